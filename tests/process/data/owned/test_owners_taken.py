"""What was found while a class had owners, when it has none any more: for its administrators."""

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
Taken: TypeAlias = Callable[[Notes], Awaitable[None]]


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
async def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Taken:
    """Return what leaves a class without owners, long ago for all that waits since then."""
    monkeypatch.setattr(former_owners, "MAX_CLOCK_SKEW", timedelta(0))
    found: Taken = request.param
    return found


async def refused(notes: Notes, requests: list[tuple[str, str, Any]], *statuses: int) -> None:
    for method, path, request in requests:
        answer = await notes.request("ada", method, path, **request)
        assert answer.status_code in statuses, (method, path, answer.text)
        assert SECRET not in answer.text
        if answer.status_code == 403:
            assert answer.json()["scope"] == "admin"


async def test_results_of_a_standing_query(drafts: Drafts, taken: Taken) -> None:
    notes = await notes_of(drafts.running, OWNED)
    query = f"standing-queries/{await notes.query('operator')}"
    await notes.write(SECRET)
    await notes.shows(f"{query}/results?after=0", SECRET)
    await taken(notes)
    requests: list[tuple[str, str, Any]] = [
        ("GET", query, {}),
        ("GET", f"{query}/results?after=0", {}),
        ("GET", f"{query}/results?after=0", EVENTS),
        ("DELETE", query, {}),
    ]
    await refused(notes, requests, 403)
    await notes.shows(f"{query}/results?after=0", SECRET)
    if taken is not drop:
        own = await notes.create("ada", "standing-queries", QUERY)
        answer = await notes.request("ada", "GET", f"standing-queries/{own}/results?after=0")
        assert answer.status_code == 200, answer.text


async def test_deltas_of_a_view(drafts: Drafts, taken: Taken) -> None:
    notes = await notes_of(drafts.running, OWNED)
    view = f"incremental-views/{await notes.create('operator', 'incremental-views', VIEW)}"
    await notes.becomes(view, "ready")
    first = (await notes.state(f"{view}/result"))["delta"]
    await notes.write(SECRET)
    await notes.shows(f"{view}/deltas?after={first}", SECRET)
    await taken(notes)
    requests: list[tuple[str, str, Any]] = [
        ("GET", view, {}),
        ("GET", f"{view}/result", {}),
        ("GET", f"{view}/deltas?after={first}", {}),
        ("GET", f"{view}/deltas?after={first}", EVENTS),
        ("DELETE", view, {}),
    ]
    await refused(notes, requests, 403)
    if taken is not drop:
        own = await notes.create("ada", "incremental-views", VIEW)
        answer = await notes.request("ada", "GET", f"incremental-views/{own}")
        assert answer.status_code == 200, answer.text


async def test_results_of_a_message_flow(drafts: Drafts, taken: Taken) -> None:
    notes = await notes_of(drafts.running, OWNED)
    await notes.write(SECRET)
    flow = f"message-flows/{await notes.create('operator', 'message-flows', FLOW)}"
    [ticket] = (await notes.post("operator", f"{flow}/messages", MESSAGE))["tickets"]
    await notes.shows(f"{flow}/messages/{ticket}", '"done"')
    await notes.shows(f"{flow}/results", SECRET)
    await taken(notes)
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
    await refused(notes, requests, 403)
    if taken is not drop:
        own = await notes.create("ada", "message-flows", FLOW)
        answer = await notes.request("ada", "GET", f"message-flows/{own}/results")
        assert answer.status_code == 200, answer.text


async def test_what_is_kept_of_a_class_that_is_gone(drafts: Drafts) -> None:
    """It is for administrators; who could remove it while the class was there still can."""
    notes = await notes_of(drafts.running, OPEN)
    view = f"incremental-views/{await notes.create('ada', 'incremental-views', VIEW)}"
    query = f"standing-queries/{await notes.query('ada')}"
    flow = f"message-flows/{await notes.create('ada', 'message-flows', FLOW)}"
    for path in (view, query):
        await notes.becomes(path, "ready")
    await notes.write(SECRET)
    await notes.shows(f"{query}/results?after=0", SECRET)
    await drop(notes)
    kept = [f"{view}/result", f"{view}/deltas", f"{query}/results?after=0"]
    await refused(notes, [("GET", path, {}) for path in kept], 403)
    # Without its plan nobody knows what the results of a flow show.
    await refused(notes, [("GET", f"{flow}/results", {})], 409)
    for path in (view, query):
        await notes.becomes(path, "stopped")
    for path in (view, query, flow):
        await refused(notes, [("GET", path, {})], 200)
        await refused(notes, [("DELETE", path, {})], 204)
        assert (await notes.request("operator", "GET", path)).status_code == 404


async def test_what_also_uses_a_class_that_has_owners_is_for_its_administrators(
    drafts: Drafts,
) -> None:
    """That another class is gone gives nobody a right."""
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
    await refused(notes, requests, 403)
    for path in paths:
        answer = await notes.request("operator", "DELETE", path)
        assert answer.status_code == 204, answer.text
