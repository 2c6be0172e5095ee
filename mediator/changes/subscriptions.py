"""Subscriptions to a feed from a position on: first past events, then new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from mediator.changes.fanout import Buffer, Fanout
from mediator.changes.feed import Event, Feed, PositionGone
from mediator.changes.partitions import PARTITIONS
from mediator.changes.position import FeedPosition, order_of

__all__ = ["Subscription", "Subscriptions"]

_BATCH: Final = 500


class Subscription:
    """One subscriber of a feed.

    Attributes:
        position: What has been seen so far, events of other classes included.
        ended: Whether the process is about to end: there will be no more.
    """

    def __init__(self, feed: Feed, fanout: Fanout, database: str, position: FeedPosition) -> None:
        self._feed = feed
        self._fanout = fanout
        self._database = database
        self._buffer: Buffer | None = None
        self._caught_up = False
        self.position = position
        self.ended = False

    async def next(self, wait_s: float, limit: int = _BATCH) -> list[tuple[Event, FeedPosition]]:
        """Return events, each with the position after it; none if none came in `wait_s`.

        Raises:
            PositionGone: Events that are due are no longer kept.
            Unavailable: The feed does not answer.
        """
        buffer = self._buffer
        if buffer is None:
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
        """Detach from the feed."""
        if self._buffer is not None:
            self._fanout.detach(self._buffer)
            self._buffer = None

    def end(self) -> None:
        """Make the subscriber end."""
        self.ended = True
        if self._buffer is not None:
            self._buffer.overflow()

    async def _read_missed(self, limit: int) -> list[Event]:
        """Read the events after the position, oldest first."""
        if await self._feed.generation(self._database) != self.position.generation:
            raise PositionGone("The feed that gave this position is lost.")
        reads = [
            self._feed.events(self._database, partition, id_, limit)
            for partition, id_ in enumerate(self.position.ids)
        ]
        events = [event for events in await asyncio.gather(*reads) for event in events]
        return sorted(events, key=_age)[:limit]

    def _after_position(self, events: Sequence[Event]) -> list[tuple[Event, FeedPosition]]:
        result = []
        for event in events:
            if order_of(event.id) > order_of(self.position.ids[event.partition]):
                self.position = self.position.advanced(event.partition, event.id)
                result.append((event, self.position))
        return result


def _age(event: Event) -> tuple[int, int]:
    return order_of(event.id)


class Subscriptions:
    """All subscriptions in this process."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._fanouts: dict[str, Fanout] = {}
        self._open: set[Subscription] = set()
        self._ended = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._open)

    async def open(self, database: str, position: FeedPosition) -> Subscription:
        """Subscribe to a feed from a position on.

        Raises:
            PositionGone: Changes after it are no longer kept, or the feed was another one.
            Unavailable: The feed does not answer.
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
        """Close a subscription."""
        self._open.discard(subscription)
        subscription.close()

    async def now(self, database: str) -> FeedPosition:
        """Return the position after all changes of a feed."""
        generation = await self._feed.generation(database)
        ids = [await self._feed.last(database, partition) for partition in range(PARTITIONS)]
        return FeedPosition(generation, tuple(ids))

    async def beginning(self, database: str) -> FeedPosition:
        """Return the position before all changes that a feed keeps."""
        generation = await self._feed.generation(database)
        ids = [await self._feed.oldest(database, partition) for partition in range(PARTITIONS)]
        return FeedPosition(generation, tuple(ids))

    def end(self) -> None:
        """End all subscriptions, and those that are opened later."""
        self._ended = True
        for subscription in tuple(self._open):
            subscription.end()

    async def close_all(self) -> None:
        """End all subscriptions, and stop the readers."""
        self.end()
        for fanout in self._fanouts.values():
            fanout.close()
