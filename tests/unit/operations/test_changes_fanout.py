"""The shared read of a feed ends with its last follower, whatever the driver does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from mediator.changes.feed import Event
from mediator.changes.subscriptions import Fanout


class UncancellableFeed:
    """A feed whose driver loses a cancellation, as redis-py does now and then."""

    def __init__(self) -> None:
        self.reads = 0
        self.released = asyncio.Event()
        self.followed = asyncio.Event()
        self.follower: asyncio.Task[Any] | None = None

    async def last(self, _database: str, _partition: int) -> str:
        return "0-0"

    async def generation(self, _database: str) -> str:
        return "one"

    async def follow(
        self, _database: str, _after: Sequence[str], _limit: int, _wait_s: float
    ) -> list[Event]:
        self.reads += 1
        self.follower = asyncio.current_task()
        self.followed.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            await self.released.wait()
        await asyncio.sleep(0)
        return [Event(0, "1-0", "c", b"{}")]


async def test_a_read_ends_even_if_its_cancellation_was_lost() -> None:
    feed = UncancellableFeed()
    fanout = Fanout(cast(Any, feed), "news")
    buffer = await fanout.attach()
    await feed.followed.wait()
    fanout.detach(buffer)
    feed.released.set()
    assert feed.follower is not None
    await asyncio.wait_for(feed.follower, 10.0)
    assert feed.reads == 1


async def test_closing_waits_for_a_read_whose_cancellation_was_lost() -> None:
    """The feed's connections are closed next: a running read would open one that nobody closes."""
    feed = UncancellableFeed()
    fanout = Fanout(cast(Any, feed), "news")
    fanout.detach(await fanout.attach())
    await fanout.attach()
    await feed.followed.wait()
    asyncio.get_running_loop().call_soon(feed.released.set)
    await fanout.close()
    assert feed.follower is not None
    assert feed.follower.done()
