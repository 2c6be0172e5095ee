"""Standing queries whose results go somewhere, when a class that they use gets owners.

Ada may read and write, and is no administrator: what others write into a class with owners must not
come to her by a query that she created before.
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


async def is_stopped(notes: Notes, query: str) -> None:
    await notes.becomes(f"standing-queries/{query}", "stopped")
    assert "notes have owners" in (await notes.state(f"standing-queries/{query}"))["detail"]


async def test_results_do_not_go_on_into_a_stream(drafts: Drafts) -> None:
    notes = await notes_of(drafts.running, OPEN)
    await notes.declare("hers", "all")
    query = await notes.query("ada", {"stream": "hers"})
    administrators = await notes.query("operator", {"stream": "all"})
    await notes.write("for everybody")
    for stream in ("hers", "all"):
        await notes.shows(f"event-streams/{stream}/tuples?after=0", "for everybody")
    await notes.set(notes=OWNED)
    await notes.write(SECRET)
    # That of an administrator goes on, which shows that there was something to be found.
    await notes.shows("event-streams/all/tuples?after=0", SECRET)
    await is_stopped(notes, query)
    assert await notes.titles("hers") == ["for everybody"]
    assert (await notes.state(f"standing-queries/{administrators}"))["state"] == "ready"


async def test_results_that_were_found_already_do_not_go_into_a_stream(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class gets owners after the results were read, and before they are appended."""
    notes = await notes_of(drafts.running, OPEN)
    await notes.declare("hers")
    query = await notes.query("ada", {"stream": "hers"})
    shared = notes.running.container.mediator.coordination
    assert shared is not None
    results, overtaken = shared.standing_results.results, list[Any]()

    async def and_owners_come(key: QueryKey, *args: Any) -> Any:
        found = await results(key, *args)
        if found and key.query == query and not overtaken:
            overtaken.extend(found)
            await notes.set(notes=OWNED)
        return found

    monkeypatch.setattr(shared.standing_results, "results", and_owners_come)
    await notes.write(SECRET)
    await is_stopped(notes, query)
    assert overtaken
    assert await notes.titles("hers") == []


async def test_results_wait_while_it_is_not_known_whether_owners_came(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = await notes_of(drafts.running, OPEN)
    await notes.declare("hers")
    query = await notes.query("ada", {"stream": "hers"})
    plane, looks = notes.running.container.mediator.data, list[str]()
    route = plane.route

    async def fail(database: str, class_name: str) -> Any:
        if (database, class_name) != (notes.database, ""):  # as for a newer schema
            return await route(database, class_name)
        looks.append(class_name)
        raise Unavailable("It is down.", system="catalogue")

    async def has_looked() -> bool:
        return len(looks) > 2

    with monkeypatch.context() as down:
        down.setattr(plane, "route", fail)
        await notes.write("for everybody")
        await eventually(has_looked)
        assert await notes.titles("hers") == []
    await notes.shows("event-streams/hers/tuples?after=0", "for everybody")
    assert (await notes.state(f"standing-queries/{query}"))["state"] == "ready"


class Attempts:
    """Attempts to write copies, none of which succeeds before `is_up`: the ids of the objects."""

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
        self.ids += [each.id for each in operations]
        return [Unavailable("It is down.", system="redis") for _ in operations]

    @property
    def _copies(self) -> tuple[str, str]:
        return self._database, "copies"

    async def are_made(self, id_: str, count: int) -> None:
        """Wait for so many more attempts to write an object."""
        self.ids.clear()

        async def is_so() -> bool:
            return self.ids.count(id_) >= count

        await eventually(is_so)


async def test_results_that_were_found_already_do_not_go_into_a_class(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_deliveries, "_MAX_PAUSE_S", 0.1)
    notes = await notes_of(drafts.running, OPEN)
    attempts = Attempts(notes, monkeypatch)
    query = await notes.query("ada", {"class": "copies"})
    administrators = await notes.query("operator", {"class": "copies"})
    await notes.write(SECRET)
    await attempts.are_made(f"{query}-1", 1)
    await notes.set(notes=OWNED)
    await is_stopped(notes, query)
    # One may have been under way.
    await attempts.are_made(f"{administrators}-1", 2)
    await attempts.are_made(f"{administrators}-1", 5)
    assert f"{query}-1" not in attempts.ids
    attempts.is_up = True
    await notes.shows(f"copies/{administrators}-1", SECRET)
    assert (await notes.request("operator", "GET", f"copies/{query}-1")).status_code == 404


async def test_results_do_not_go_on_into_a_class_that_gets_owners(drafts: Drafts) -> None:
    """Who may write only objects of her own would write those of others."""
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
    await notes.becomes(f"standing-queries/{query}", "ready")
    await notes.set(notes=OPEN, drafts=OWNED)
    await notes.becomes(f"standing-queries/{query}", "stopped")
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
    await notes.shows(f"standing-queries/{query}/results?after=0", SECRET)
