"""The one look at a feed: it ends with the last who follows, whatever the driver does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from mediator.changes.feed import Event
from mediator.changes.subscriptions import Fanout


class DeafFeed:
    """A feed whose driver loses a cancellation, as redis-py does now and then."""

    def __init__(self) -> None:
        self.looks = 0
        self.turn = asyncio.Event()
        self.asked = asyncio.Event()
        self.asker: asyncio.Task[Any] | None = None

    async def last(self, _database: str, _partition: int) -> str:
        return "0-0"

    async def generation(self, _database: str) -> str:
        return "one"

    async def follow(
        self, _database: str, _after: Sequence[str], _limit: int, _wait_s: float
    ) -> list[Event]:
        self.looks += 1
        self.asker = asyncio.current_task()
        self.asked.set()
        try:
            await self.turn.wait()
        except asyncio.CancelledError:
            await self.turn.wait()
        await asyncio.sleep(0)
        return [Event(0, "1-0", "c", b"{}")]


async def test_a_look_ends_even_if_its_cancellation_was_lost() -> None:
    feed = DeafFeed()
    fanout = Fanout(cast(Any, feed), "news")
    buffer = await fanout.attach()
    await feed.asked.wait()
    fanout.detach(buffer)
    feed.turn.set()
    assert feed.asker is not None
    await asyncio.wait_for(feed.asker, 10.0)
    assert feed.looks == 1
