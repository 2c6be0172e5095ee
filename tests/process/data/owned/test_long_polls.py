"""What a request may see is decided once more when it has waited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx
import pytest

from app.api.following import Followers
from mediator.changes.subscriptions import Subscription
from tests.process.caching.guarded import bearer
from tests.process.data.owned.drafts import SECRET, Drafts
from tests.process.data.owned.notes import OPEN, OWNED, Notes, notes_of

KINDS: Final = ("standing", "views", "tuples", "changes")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Is set when a request waits."""
    waits, counted, following = asyncio.Event(), Followers.counted, Subscription.next

    def count(followers: Followers, kind: str) -> Any:
        waits.set()
        return counted(followers, kind)

    async def follow(subscription: Subscription, *args: Any) -> Any:
        if len(args) == 2:  # as only a request with a limit does
            waits.set()
        return await following(subscription, *args)

    monkeypatch.setattr(Followers, "counted", count)
    monkeypatch.setattr(Subscription, "next", follow)
    return waits


async def path_of(notes: Notes, kind: str) -> str:
    match kind:
        case "standing":
            return f"standing-queries/{await notes.query('operator')}/results?wait=30"
        case "views":
            body = {"class": "notes"}
            view = f"incremental-views/{await notes.create('operator', 'incremental-views', body)}"
            await notes.becomes(view, "ready")
            return f"{view}/deltas?wait=30"
        case "tuples":
            return "event-streams/words/tuples?wait=30"
    return "changes?wait=30"


async def polled(
    notes: Notes, path: str, key: str, begun: asyncio.Event, meanwhile: Callable[[], Awaitable[Any]]
) -> httpx.Response:
    """Return the answer to a request that waits until something else has happened."""
    begun.clear()
    url = f"/v1/{notes.database}/{path}"
    polling = asyncio.create_task(notes.running.data.get(url, headers=bearer(key)))
    await begun.wait()
    await meanwhile()
    await notes.write(SECRET)
    return await polling


@pytest.mark.parametrize("kind", KINDS)
async def test_of_a_key_that_was_revoked_meanwhile(
    drafts: Drafts, begun: asyncio.Event, kind: str
) -> None:
    notes = await notes_of(drafts.running, OPEN)
    tenancy, owner = notes.running.container.mediator.tenancy, notes.running.owner
    path = await path_of(notes, kind)
    key = await tenancy.create_key(owner, "eve", ["read"])
    answer = await polled(notes, path, key["key"], begun, lambda: tenancy.revoke(owner, key["id"]))
    assert answer.status_code == 401, answer.text
    assert SECRET not in answer.text


@pytest.mark.parametrize("kind", KINDS)
async def test_of_what_may_not_be_seen_any_more(
    drafts: Drafts, begun: asyncio.Event, kind: str
) -> None:
    notes = await notes_of(drafts.running, OPEN)
    path = await path_of(notes, kind)
    grant = "read" if kind != "tuples" else f"read:{notes.database}/words"
    key = await notes.running.key(grant)
    more: dict[str, Any] = {"notes": OWNED} if kind != "tuples" else {"notes": OPEN, "words": OPEN}
    answer = await polled(notes, path, key, begun, lambda: notes.set(**more))
    assert answer.status_code == 403, answer.text
    assert SECRET not in answer.text


@pytest.mark.parametrize("kind", KINDS)
async def test_of_what_may_be_seen(drafts: Drafts, begun: asyncio.Event, kind: str) -> None:
    notes = await notes_of(drafts.running, OPEN)
    path, key = await path_of(notes, kind), await notes.running.key("read")

    async def nothing() -> None:
        """Let nothing happen."""

    answer = await polled(notes, path, key, begun, nothing)
    assert answer.status_code == 200, answer.text
    assert SECRET in answer.text
