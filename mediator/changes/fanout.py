"""One look at a database's feed for all who follow it in this process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from mediator.base.errors import MediatorError
from mediator.changes.feed import Event, Feed
from mediator.changes.partitions import PARTITIONS
from mediator.changes.position import order_of

__all__ = ["Buffer", "Fanout"]

log = logging.getLogger(__name__)

_ROOM: Final = 5_000
_BATCH: Final = 1_000
_BLOCK_S: Final = 1.0
_PAUSE_S: Final = 0.5


class Buffer:
    """Events that a subscriber has not taken yet; one that is too slow loses them, and is told."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._stirred = asyncio.Event()
        self.broken = False
        """Whether events are missing: they are to be read from the feed itself."""

    def put(self, events: Iterable[Event]) -> None:
        """Add events, if there is room for them."""
        self._events.extend(events)
        if len(self._events) > _ROOM:
            self.break_off()
        self._stirred.set()

    def break_off(self) -> None:
        """Lose all events."""
        self._events.clear()
        self.broken = True
        self._stirred.set()

    def mend(self) -> None:
        """Begin again, before the feed itself is read."""
        self._events.clear()
        self.broken = False

    async def take(self, limit: int, wait_s: float) -> list[Event]:
        """Take up to `limit` events, waiting for the first of them."""
        if not self._events and not self.broken:
            self._stirred.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._stirred.wait()
            except TimeoutError:
                return []
        return [self._events.popleft() for _ in range(min(limit, len(self._events)))]


class Fanout:
    """Follows one database while somebody is attached.

    A driver may lose a cancellation in its own timeouts. So a look at the feed is told besides that
    it is over: else each one that was missed would go on for ever, with a connection of its own.
    """

    def __init__(self, feed: Feed, database: str) -> None:
        self._feed = feed
        self._database = database
        self._buffers: set[Buffer] = set()
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._following = asyncio.Event()

    async def attach(self) -> Buffer:
        """Return a buffer that gets every event from now on, or is broken."""
        buffer = Buffer()
        self._buffers.add(buffer)
        if self._task is None:
            self._over = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._over))
        await self._following.wait()
        return buffer

    def detach(self, buffer: Buffer) -> None:
        """Let a buffer go; the last one ends the look at the feed."""
        self._buffers.discard(buffer)
        if not self._buffers:
            self.close()

    def close(self) -> None:
        """End the look at the feed; whoever waits is woken."""
        if self._task is not None:
            self._over.set()
            self._task.cancel()
            self._task = None
        self._following.set()
        self._following = asyncio.Event()
        for buffer in self._buffers:
            buffer.break_off()

    async def _run(self, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                await self._follow(over)
            except MediatorError as error:
                log.warning("following the feed of %s: %s", self._database, error)
            except Exception:
                log.exception("following the feed of %s failed", self._database)
            if over.is_set():
                return  # the buffers are the next one's
            for buffer in self._buffers:
                buffer.break_off()
            self._following.set()  # whoever attaches now finds out for himself
            await asyncio.sleep(_PAUSE_S)

    async def _follow(self, over: asyncio.Event) -> None:
        at = [await self._feed.last(self._database, p) for p in range(PARTITIONS)]
        generation = await self._feed.generation(self._database)
        if over.is_set():
            return
        for buffer in self._buffers:
            buffer.break_off()  # what was appended before now is for them to read
        self._following.set()
        while await self._feed.generation(self._database) == generation:
            events = await self._feed.follow(self._database, at, _BATCH, _BLOCK_S)
            if over.is_set():
                return
            for event in events:
                at[event.partition] = max(at[event.partition], event.id, key=order_of)
            if events:
                for buffer in self._buffers:
                    buffer.put(events)
