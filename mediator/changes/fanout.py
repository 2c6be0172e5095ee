"""One reader of a database's feed for all its subscribers in this process."""

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

_CAPACITY: Final = 5_000
_BATCH: Final = 1_000
_BLOCK_S: Final = 1.0
_PAUSE_S: Final = 0.5


class Buffer:
    """Events that a subscriber has not taken yet; it overflows if the subscriber is too slow."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self.has_overflowed = False
        """Whether events are missing: they are to be read from the feed itself."""

    def put(self, events: Iterable[Event]) -> None:
        """Add events, if there is room for them."""
        self._events.extend(events)
        if len(self._events) > _CAPACITY:
            self.overflow()
        self._changed.set()

    def overflow(self) -> None:
        """Drop all events."""
        self._events.clear()
        self.has_overflowed = True
        self._changed.set()

    def reset(self) -> None:
        """Start again, before the feed itself is read."""
        self._events.clear()
        self.has_overflowed = False

    async def take(self, limit: int, wait_s: float) -> list[Event]:
        """Take up to `limit` events, waiting for the first of them."""
        if not self._events and not self.has_overflowed:
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                return []
        return [self._events.popleft() for _ in range(min(limit, len(self._events)))]


class Fanout:
    """Follows one database while it has subscribers.

    A driver may lose a cancellation in its own timeouts. So a reader gets an event besides: else
    one that missed its cancellation would go on for ever, with a connection of its own.
    """

    def __init__(self, feed: Feed, database: str) -> None:
        self._feed = feed
        self._database = database
        self._buffers: set[Buffer] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._following = asyncio.Event()

    async def attach(self) -> Buffer:
        """Return a buffer that gets every event from now on, or overflows."""
        buffer = Buffer()
        self._buffers.add(buffer)
        if self._task is None:
            self._stopped = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._stopped))
        await self._following.wait()
        return buffer

    def detach(self, buffer: Buffer) -> None:
        """Detach a buffer; without any the reader stops."""
        self._buffers.discard(buffer)
        if not self._buffers:
            self.close()

    def close(self) -> None:
        """Stop the reader, and wake all subscribers."""
        if self._task is not None:
            self._stopped.set()
            self._task.cancel()
            self._task = None
        self._following.set()
        self._following = asyncio.Event()
        for buffer in self._buffers:
            buffer.overflow()

    async def _run(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            try:
                await self._follow(stopped)
            except MediatorError as error:
                log.warning("following the feed of %s: %s", self._database, error)
            except Exception:
                log.exception("following the feed of %s failed", self._database)
            if stopped.is_set():
                return  # the buffers belong to the next reader
            for buffer in self._buffers:
                buffer.overflow()
            self._following.set()  # a new subscriber reads the feed itself
            await asyncio.sleep(_PAUSE_S)

    async def _follow(self, stopped: asyncio.Event) -> None:
        at = [await self._feed.last(self._database, p) for p in range(PARTITIONS)]
        generation = await self._feed.generation(self._database)
        if stopped.is_set():
            return
        for buffer in self._buffers:
            buffer.overflow()  # they read earlier events themselves
        self._following.set()
        while await self._feed.generation(self._database) == generation:
            events = await self._feed.follow(self._database, at, _BATCH, _BLOCK_S)
            if stopped.is_set():
                return
            for event in events:
                at[event.partition] = max(at[event.partition], event.id, key=order_of)
            if events:
                for buffer in self._buffers:
                    buffer.put(events)
