"""Subscriptions to a feed from a position: first past events, then new ones.

One reader of a database's feed serves all its subscribers in this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from mediator.base.concurrency import end
from mediator.base.errors import MediatorError
from mediator.base.page_size import PageSize
from mediator.changes.feed import PARTITIONS, Event, Feed, PositionGone
from mediator.changes.position import FeedPosition, order_of

__all__ = ["CAPACITY", "Buffer", "Fanout", "Subscription", "Subscriptions"]

log = logging.getLogger(__name__)

CAPACITY: Final = 5_000
CAPACITY_BYTES: Final = 2**26
_INITIAL_PAGE: Final = 16
"""Events of each partition in the first read, while their sizes are unknown."""

_BLOCK_S: Final = 1.0
_PAUSE_S: Final = 0.5


class Buffer:
    """Events that a subscriber has not taken yet; overflows if it is too slow."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.has_overflowed = False
        """Whether events are missing and must be read from the feed."""

    def put(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events.append(event)
            self._bytes += len(event.data)
        if len(self._events) > CAPACITY or self._bytes > CAPACITY_BYTES:
            self.overflow()
        self._changed.set()

    def overflow(self) -> None:
        self._clear()
        self.has_overflowed = True
        self._changed.set()

    def reset(self) -> None:
        """Clear the buffer before the feed is read."""
        self._clear()
        self.has_overflowed = False

    def _clear(self) -> None:
        self._events.clear()
        self._bytes = 0

    async def take(self, limit: int, wait_s: float) -> list[Event]:
        """Take up to `limit` events, waiting for the first of them."""
        if not self._events and not self.has_overflowed:
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                return []
        events = [self._events.popleft() for _ in range(min(limit, len(self._events)))]
        self._bytes -= _bytes_of(events)
        return events


def _bytes_of(events: Iterable[Event]) -> int:
    return sum(len(event.data) for event in events)


class Fanout:
    def __init__(self, feed: Feed, database: str) -> None:
        self._feed = feed
        self._database = database
        self._buffers: set[Buffer] = set()
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._following = asyncio.Event()

    async def attach(self) -> Buffer:
        """Return a buffer that gets every event from now on, or overflows."""
        buffer = Buffer()
        self._buffers.add(buffer)
        if self._task is None:
            # One event per reader: the former reader may still be ending.
            self._stopped = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._stopped))
        await self._following.wait()
        return buffer

    def detach(self, buffer: Buffer) -> None:
        """Detach a buffer; the last one stops the reader."""
        self._buffers.discard(buffer)
        if not self._buffers:
            self._stop()

    async def close(self) -> None:
        """Stop the reader, and wait until it no longer uses the feed."""
        self._stop()
        await end(self._ending)

    def _stop(self) -> None:
        if self._task is not None:
            # A driver may swallow the cancellation in its timeouts: the event ends such a reader.
            self._stopped.set()
            self._task.cancel()
            self._ending.add(self._task)
            self._task.add_done_callback(self._ending.discard)
            self._task = None
        # Wake subscribers that are attaching; later ones wait for the next reader.
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
            buffer.overflow()  # subscribers read earlier events themselves
        self._following.set()
        page_size = PageSize()
        while await self._feed.generation(self._database) == generation:
            events = await self._feed.follow(self._database, at, page_size.count, _BLOCK_S)
            page_size.succeeded([len(event.data) for event in events])
            if stopped.is_set():
                return
            for event in events:
                at[event.partition] = max(at[event.partition], event.id, key=order_of)
            if events:
                for buffer in self._buffers:
                    buffer.put(events)


_BATCH_EVENTS: Final = 500


class Subscription:
    """One subscriber of a feed.

    Attributes:
        position: How far it has read, events of other classes included.
        ended: Whether the process is about to end: no more events will come.
    """

    def __init__(self, feed: Feed, fanout: Fanout, database: str, position: FeedPosition) -> None:
        self._feed = feed
        self._fanout = fanout
        self._database = database
        self._buffer: Buffer | None = None
        self._caught_up = False
        self._page_size = PageSize(_INITIAL_PAGE)
        self.position = position
        self.ended = False

    async def next(
        self, wait_s: float, limit: int = _BATCH_EVENTS
    ) -> list[tuple[Event, FeedPosition]]:
        """Return up to `limit` events, each with the position after it; empty if none came.

        Args:
            wait_s: How long to wait for the first event, in seconds.

        Raises:
            PositionGone: The next events are no longer kept.
            Unavailable: The feed does not respond.
        """
        buffer = self._buffer
        if buffer is None:
            # Before the feed is read: later events are in the buffer.
            buffer = self._buffer = await self._fanout.attach()
        if buffer.has_overflowed:
            buffer.reset()
            self._caught_up = False
        if not self._caught_up:
            events = await self._read_missed(limit)
            self._caught_up = not events
            if events:
                return self._after_position(events)
        return self._after_position(await buffer.take(limit, wait_s))

    def close(self) -> None:
        if self._buffer is not None:
            self._fanout.detach(self._buffer)
            self._buffer = None

    def end(self) -> None:
        self.ended = True
        if self._buffer is not None:
            self._buffer.overflow()

    async def _read_missed(self, limit: int) -> list[Event]:
        if await self._feed.generation(self._database) != self.position.generation:
            raise PositionGone("The feed that gave this position is lost.")
        # Each partition's share of the limit, and no more than fits.
        count = min(self._page_size.count, -(-limit // PARTITIONS))
        reads = [
            self._feed.events(self._database, partition, id_, count)
            for partition, id_ in enumerate(self.position.ids)
        ]
        pages = await asyncio.gather(*reads)
        self._page_size.succeeded([len(event.data) for page in pages for event in page])
        return _in_order(pages, count)[:limit]

    def _after_position(self, events: Sequence[Event]) -> list[tuple[Event, FeedPosition]]:
        result = []
        for event in events:
            # An event may be both in a read and in the buffer.
            if order_of(event.id) > order_of(self.position.ids[event.partition]):
                self.position = self.position.advanced(event.partition, event.id)
                result.append((event, self.position))
        return result


def _in_order(pages: Sequence[Sequence[Event]], count: int) -> list[Event]:
    """Return the events of all partitions up to the point where none is missing.

    A page of `count` events may be followed by more, which precede later events of other
    partitions.
    """
    events = sorted((e for page in pages for e in page), key=lambda event: order_of(event.id))
    ends = [order_of(page[-1].id) for page in pages if len(page) == count]
    if not ends:
        return events
    return [event for event in events if order_of(event.id) <= min(ends)]


class Subscriptions:
    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._fanouts: dict[str, Fanout] = {}
        self._open: set[Subscription] = set()
        self._ended = False

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def ended(self) -> bool:
        """Whether the process is about to end."""
        return self._ended

    async def open(self, database: str, position: FeedPosition) -> Subscription:
        """Subscribe to a feed from a position.

        Raises:
            PositionGone: Changes after it are no longer kept, or it is of another generation.
            Unavailable: The feed does not respond.
        """
        if position.generation != await self._feed.generation(database):
            raise PositionGone("The feed that gave this position is lost.")
        for partition, id_ in enumerate(position.ids):
            if order_of(id_) < order_of(await self._feed.oldest(database, partition)):
                raise PositionGone("Changes after this position are no longer kept.")
        fanout = self._fanouts.setdefault(database, Fanout(self._feed, database))
        subscription = Subscription(self._feed, fanout, database, position)
        subscription.ended = self._ended
        self._open.add(subscription)
        return subscription

    def close(self, subscription: Subscription) -> None:
        self._open.discard(subscription)
        subscription.close()

    async def now(self, database: str) -> FeedPosition:
        return await self._position(database, self._feed.last)

    async def beginning(self, database: str) -> FeedPosition:
        """Return the position before all changes that a feed keeps."""
        return await self._position(database, self._feed.oldest)

    async def _position(
        self, database: str, end: Callable[[str, int], Awaitable[str]]
    ) -> FeedPosition:
        generation = await self._feed.generation(database)
        ids = [await end(database, partition) for partition in range(PARTITIONS)]
        return FeedPosition(generation, tuple(ids))

    def end(self) -> None:
        """End all subscriptions, including those opened later."""
        self._ended = True
        for subscription in tuple(self._open):
            subscription.end()

    async def close_all(self) -> None:
        self.end()
        for fanout in tuple(self._fanouts.values()):
            await fanout.close()
