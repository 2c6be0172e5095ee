"""Deliveries of standing queries when a class that they use gets owners.

Ada may read and write but is not an administrator: a query that she created before must not deliver
to her what others write into a class with owners.
"""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import Unavailable
from mediator.standing import class_deliveries
from mediator.standing.results import QueryKey
from tests.faults.conditions import eventually
from tests.process.data.owned.drafts import SECRET, Drafts
from tests.process.data.owned.notes import OPEN, OWNED, Notes, notes_of


async def wait_until_stopped(notes: Notes, query: str) -> None:
    await notes.wait_for_state(f"standing-queries/{query}", "stopped")
    assert "notes have owners" in (await notes.state(f"standing-queries/{query}"))["detail"]


async def test_delivery_into_a_stream_stops(drafts: Drafts) -> None:
    notes = await notes_of(drafts.running, OPEN)
    await notes.declare("hers", "all")
    query = await notes.query("ada", {"stream": "hers"})
    administrators = await notes.query("operator", {"stream": "all"})
    await notes.write("for everybody")
    for stream in ("hers", "all"):
        await notes.wait_for_text(f"event-streams/{stream}/tuples?after=0", "for everybody")
    await notes.set(notes=OWNED)
    await notes.write(SECRET)
    # The administrator's query continues, which shows that there was a result.
    await notes.wait_for_text("event-streams/all/tuples?after=0", SECRET)
    await wait_until_stopped(notes, query)
    assert await notes.titles("hers") == ["for everybody"]
    assert (await notes.state(f"standing-queries/{administrators}"))["state"] == "ready"


async def test_results_read_before_are_not_delivered_into_a_stream(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class gets owners after the results were read, and before they are appended."""
    notes = await notes_of(drafts.running, OPEN)
    await notes.declare("hers")
    query = await notes.query("ada", {"stream": "hers"})
    shared = notes.running.container.mediator.coordination
    assert shared is not None
    results, late_results = shared.standing_results.results, list[Any]()

    async def read_then_set_owners(key: QueryKey, *args: Any) -> Any:
        rows = await results(key, *args)
        if rows and key.query == query and not late_results:
            late_results.extend(rows)
            await notes.set(notes=OWNED)
        return rows

    monkeypatch.setattr(shared.standing_results, "results", read_then_set_owners)
    await notes.write(SECRET)
    await wait_until_stopped(notes, query)
    assert late_results
    assert await notes.titles("hers") == []


async def test_results_wait_while_it_is_unknown_whether_the_class_has_owners(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = await notes_of(drafts.running, OPEN)
    await notes.declare("hers")
    query = await notes.query("ada", {"stream": "hers"})
    plane, lookups = notes.running.container.mediator.data, list[str]()
    route = plane.route

    async def fail(database: str, class_name: str) -> Any:
        if (database, class_name) != (notes.database, ""):  # as for a newer schema
            return await route(database, class_name)
        lookups.append(class_name)
        raise Unavailable("It is down.", system="catalogue")

    async def has_retried() -> bool:
        return len(lookups) > 2

    with monkeypatch.context() as down:
        down.setattr(plane, "route", fail)
        await notes.write("for everybody")
        await eventually(has_retried)
        assert await notes.titles("hers") == []
    await notes.wait_for_text("event-streams/hers/tuples?after=0", "for everybody")
    assert (await notes.state(f"standing-queries/{query}"))["state"] == "ready"


class Attempts:
    """Records the ids of attempted writes of copies, which fail until `is_up`."""

    def __init__(self, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids: list[str] = []
        self.is_up = False
        plane = notes.running.container.mediator.data
        self._database, self._batch = notes.database, plane.batch
        monkeypatch.setattr(plane, "batch", self._attempt)

    async def _attempt(self, operations: Any, **members: Any) -> Any:
        first = next(iter(operations), None)
        if self.is_up or first is None or (first.database, first.class_name) != self._copies:
            return await self._batch(operations, **members)
        self.ids += [operation.id for operation in operations]
        return [Unavailable("It is down.", system="redis") for _ in operations]

    @property
    def _copies(self) -> tuple[str, str]:
        return self._database, "copies"

    async def wait_for_more(self, id_: str, count: int) -> None:
        """Wait for `count` further attempts to write an object."""
        self.ids.clear()

        async def has_more() -> bool:
            return self.ids.count(id_) >= count

        await eventually(has_more)


async def test_results_read_before_are_not_delivered_into_a_class(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_deliveries, "_MAX_PAUSE_S", 0.1)
    notes = await notes_of(drafts.running, OPEN)
    attempts = Attempts(notes, monkeypatch)
    query = await notes.query("ada", {"class": "copies"})
    administrators = await notes.query("operator", {"class": "copies"})
    await notes.write(SECRET)
    await attempts.wait_for_more(f"{query}-1", 1)
    await notes.set(notes=OWNED)
    await wait_until_stopped(notes, query)
    # One attempt may have been under way.
    await attempts.wait_for_more(f"{administrators}-1", 2)
    await attempts.wait_for_more(f"{administrators}-1", 5)
    assert f"{query}-1" not in attempts.ids
    attempts.is_up = True
    await notes.wait_for_text(f"copies/{administrators}-1", SECRET)
    assert (await notes.request("operator", "GET", f"copies/{query}-1")).status_code == 404


async def test_delivery_into_a_class_that_gets_owners_stops(drafts: Drafts) -> None:
    """Otherwise Ada, who may write only her own objects, would write those of others."""
    notes = await notes_of(drafts.running, OPEN)
    values = {"author": "n.author", "title": "n.title"}
    await notes.set(notes=OPEN, drafts=OPEN)
    body = {
        "relations": {"n": {"class": "notes"}, "w": {"stream": "words"}},
        "predicates": [["n.title", "w.title"]],
        "window_s": 600,
        "into": {"class": "drafts", "values": values},
    }
    query = await notes.create("ada", "standing-queries", body)
    await notes.wait_for_state(f"standing-queries/{query}", "ready")
    await notes.set(notes=OPEN, drafts=OWNED)
    await notes.wait_for_state(f"standing-queries/{query}", "stopped")
    detail = (await notes.state(f"standing-queries/{query}"))["detail"]
    assert "drafts have owners" in detail


@pytest.mark.parametrize("into", [None, {"stream": "hers"}])
async def test_an_administrator_creates_queries_over_a_class_with_owners(
    drafts: Drafts, into: dict[str, str] | None
) -> None:
    notes = await notes_of(drafts.running, OWNED)
    await notes.declare("hers")
    query = await notes.query("operator", into)
    await notes.write(SECRET)
    await notes.wait_for_text(f"standing-queries/{query}/results?after=0", SECRET)
