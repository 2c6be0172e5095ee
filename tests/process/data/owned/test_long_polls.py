"""A long poll is authorised a second time when its wait ends."""

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
def poll_started(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set when a request waits."""
    event, counted, following = asyncio.Event(), Followers.counted, Subscription.next

    def count(followers: Followers, kind: str) -> Any:
        event.set()
        return counted(followers, kind)

    async def follow(subscription: Subscription, *args: Any) -> Any:
        if len(args) == 2:  # as only a request with a limit does
            event.set()
        return await following(subscription, *args)

    monkeypatch.setattr(Followers, "counted", count)
    monkeypatch.setattr(Subscription, "next", follow)
    return event


async def path_of(notes: Notes, kind: str) -> str:
    match kind:
        case "standing":
            return f"standing-queries/{await notes.query('operator')}/results?wait=30"
        case "views":
            body = {"class": "notes"}
            view = f"incremental-views/{await notes.create('operator', 'incremental-views', body)}"
            await notes.wait_for_state(view, "ready")
            return f"{view}/deltas?wait=30"
        case "tuples":
            return "event-streams/words/tuples?wait=30"
    return "changes?wait=30"


async def poll(
    notes: Notes,
    path: str,
    key: str,
    poll_started: asyncio.Event,
    meanwhile: Callable[[], Awaitable[Any]],
) -> httpx.Response:
    """Return the answer to a request that waits until `meanwhile` has run."""
    poll_started.clear()
    url = f"/v1/{notes.database}/{path}"
    polling = asyncio.create_task(notes.running.data.get(url, headers=bearer(key)))
    await poll_started.wait()
    await meanwhile()
    await notes.write(SECRET)
    return await polling


@pytest.mark.parametrize("kind", KINDS)
async def test_a_poll_with_a_key_revoked_meanwhile_is_refused(
    drafts: Drafts, poll_started: asyncio.Event, kind: str
) -> None:
    notes = await notes_of(drafts.running, OPEN)
    tenancy, owner = notes.running.container.mediator.tenancy, notes.running.owner
    path = await path_of(notes, kind)
    key = await tenancy.create_key(owner, "eve", ["read"])
    answer = await poll(
        notes, path, key["key"], poll_started, lambda: tenancy.revoke(owner, key["id"])
    )
    assert answer.status_code == 401, answer.text
    assert SECRET not in answer.text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_poll_without_permission_any_more_is_refused(
    drafts: Drafts, poll_started: asyncio.Event, kind: str
) -> None:
    notes = await notes_of(drafts.running, OPEN)
    path = await path_of(notes, kind)
    grant = "read" if kind != "tuples" else f"read:{notes.database}/words"
    key = await notes.running.key(grant)
    classes: dict[str, Any] = (
        {"notes": OWNED} if kind != "tuples" else {"notes": OPEN, "words": OPEN}
    )
    answer = await poll(notes, path, key, poll_started, lambda: notes.set(**classes))
    assert answer.status_code == 403, answer.text
    assert SECRET not in answer.text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_permitted_poll_is_answered(
    drafts: Drafts, poll_started: asyncio.Event, kind: str
) -> None:
    notes = await notes_of(drafts.running, OPEN)
    path, key = await path_of(notes, kind), await notes.running.key("read")

    async def change_nothing() -> None:
        """Leave keys and schemas alone."""

    answer = await poll(notes, path, key, poll_started, change_nothing)
    assert answer.status_code == 200, answer.text
    assert SECRET in answer.text
