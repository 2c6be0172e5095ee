"""Results found while a class had owners stay for administrators when it has none any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeAlias

import pytest

from mediator.changes import former_owners
from tests.process.data.owned.drafts import SECRET, Drafts
from tests.process.data.owned.notes import OPEN, OWNED, QUERY, Notes, notes_of

EVENTS: Final = {"headers": {"accept": "text/event-stream"}}
VIEW: Final = {"class": "notes"}
FLOW: Final[dict[str, Any]] = {
    "latency_s": 1,
    "plan": [
        {"op": "receive", "attributes": {"title": "string"}},
        {
            "op": "invoke",
            "query": {"class": "notes", "filter": {"eq": ["title", {"$": "/title"}]}},
            "to": "found",
        },
    ],
}
MESSAGE: Final = {"messages": [{"title": SECRET}]}
RemoveOwners: TypeAlias = Callable[[Notes], Awaitable[None]]


async def take_owner_field(notes: Notes) -> None:
    await notes.set(notes=OPEN)


async def drop(notes: Notes) -> None:
    answer = await notes.request("operator", "DELETE", "notes?all=true")
    assert answer.status_code == 200, answer.text
    await notes.set()


async def recreate(notes: Notes) -> None:
    await drop(notes)
    await notes.set(notes=OPEN)


@pytest.fixture(params=[take_owner_field, drop, recreate])
async def remove_owners(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> RemoveOwners:
    """An action that leaves a class without owners, and counts as long past."""
    monkeypatch.setattr(former_owners, "MAX_CLOCK_SKEW", timedelta(0))
    action: RemoveOwners = request.param
    return action


async def check_answers(notes: Notes, requests: list[tuple[str, str, Any]], *statuses: int) -> None:
    for method, path, request in requests:
        answer = await notes.request("ada", method, path, **request)
        assert answer.status_code in statuses, (method, path, answer.text)
        assert SECRET not in answer.text
        if answer.status_code == 403:
            assert answer.json()["scope"] == "admin"


async def test_results_of_a_standing_query(drafts: Drafts, remove_owners: RemoveOwners) -> None:
    notes = await notes_of(drafts.running, OWNED)
    query = f"standing-queries/{await notes.query('operator')}"
    await notes.write(SECRET)
    await notes.wait_for_text(f"{query}/results?after=0", SECRET)
    await remove_owners(notes)
    requests: list[tuple[str, str, Any]] = [
        ("GET", query, {}),
        ("GET", f"{query}/results?after=0", {}),
        ("GET", f"{query}/results?after=0", EVENTS),
        ("DELETE", query, {}),
    ]
    await check_answers(notes, requests, 403)
    await notes.wait_for_text(f"{query}/results?after=0", SECRET)
    if remove_owners is not drop:
        own_id = await notes.create("ada", "standing-queries", QUERY)
        answer = await notes.request("ada", "GET", f"standing-queries/{own_id}/results?after=0")
        assert answer.status_code == 200, answer.text


async def test_deltas_of_a_view(drafts: Drafts, remove_owners: RemoveOwners) -> None:
    notes = await notes_of(drafts.running, OWNED)
    view = f"incremental-views/{await notes.create('operator', 'incremental-views', VIEW)}"
    await notes.wait_for_state(view, "ready")
    first = (await notes.state(f"{view}/result"))["delta"]
    await notes.write(SECRET)
    await notes.wait_for_text(f"{view}/deltas?after={first}", SECRET)
    await remove_owners(notes)
    requests: list[tuple[str, str, Any]] = [
        ("GET", view, {}),
        ("GET", f"{view}/result", {}),
        ("GET", f"{view}/deltas?after={first}", {}),
        ("GET", f"{view}/deltas?after={first}", EVENTS),
        ("DELETE", view, {}),
    ]
    await check_answers(notes, requests, 403)
    if remove_owners is not drop:
        own_id = await notes.create("ada", "incremental-views", VIEW)
        answer = await notes.request("ada", "GET", f"incremental-views/{own_id}")
        assert answer.status_code == 200, answer.text


async def test_results_of_a_message_flow(drafts: Drafts, remove_owners: RemoveOwners) -> None:
    notes = await notes_of(drafts.running, OWNED)
    await notes.write(SECRET)
    flow = f"message-flows/{await notes.create('operator', 'message-flows', FLOW)}"
    [ticket] = (await notes.post("operator", f"{flow}/messages", MESSAGE))["tickets"]
    await notes.wait_for_text(f"{flow}/messages/{ticket}", '"done"')
    await notes.wait_for_text(f"{flow}/results", SECRET)
    await remove_owners(notes)
    requests: list[tuple[str, str, Any]] = [
        ("GET", f"{flow}/messages/{ticket}", {}),
        ("GET", f"{flow}/results", {}),
        ("GET", f"{flow}/results", EVENTS),
        ("GET", f"{flow}/dead-letters", {}),
        ("POST", f"{flow}/replay", {}),
        ("POST", f"{flow}/messages", {"json": MESSAGE}),
        ("GET", flow, {}),
        ("DELETE", flow, {}),
    ]
    await check_answers(notes, requests, 403)
    if remove_owners is not drop:
        own_id = await notes.create("ada", "message-flows", FLOW)
        answer = await notes.request("ada", "GET", f"message-flows/{own_id}/results")
        assert answer.status_code == 200, answer.text


async def test_results_over_a_dropped_class(drafts: Drafts) -> None:
    """Only administrators read them; a caller who could remove them before the drop still can."""
    notes = await notes_of(drafts.running, OPEN)
    view = f"incremental-views/{await notes.create('ada', 'incremental-views', VIEW)}"
    query = f"standing-queries/{await notes.query('ada')}"
    flow = f"message-flows/{await notes.create('ada', 'message-flows', FLOW)}"
    for path in (view, query):
        await notes.wait_for_state(path, "ready")
    await notes.write(SECRET)
    await notes.wait_for_text(f"{query}/results?after=0", SECRET)
    await drop(notes)
    paths = [f"{view}/result", f"{view}/deltas", f"{query}/results?after=0"]
    await check_answers(notes, [("GET", path, {}) for path in paths], 403)
    # Without its plan it is unknown which classes the results of a flow show.
    await check_answers(notes, [("GET", f"{flow}/results", {})], 409)
    for path in (view, query):
        await notes.wait_for_state(path, "stopped")
    for path in (view, query, flow):
        await check_answers(notes, [("GET", path, {})], 200)
        await check_answers(notes, [("DELETE", path, {})], 204)
        assert (await notes.request("operator", "GET", path)).status_code == 404


async def test_definitions_that_also_use_a_class_with_owners_are_for_its_administrators(
    drafts: Drafts,
) -> None:
    """The drop of another class grants no rights."""
    notes = await notes_of(drafts.running, OPEN)
    query = {**QUERY, "relations": {**QUERY["relations"], "w": {"class": "copies"}}}
    to_copies = {"op": "invoke", "query": {"class": "copies"}, "to": "copies"}
    flow = {**FLOW, "plan": [*FLOW["plan"], to_copies]}
    paths = [
        f"standing-queries/{await notes.create('ada', 'standing-queries', query)}",
        f"message-flows/{await notes.create('ada', 'message-flows', flow)}",
    ]
    requests: list[tuple[str, str, Any]] = [
        (method, path, {}) for path in paths for method in ("GET", "DELETE")
    ]
    await notes.set(copies=OWNED)
    await check_answers(notes, requests, 403)
    for path in paths:
        answer = await notes.request("operator", "DELETE", path)
        assert answer.status_code == 204, answer.text
