"""Following a feed from a position on: from Redis what has been, then what comes as it comes."""

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
    """One follower of a feed.

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
        if buffer.broken:
            buffer.mend()
            self._caught_up = False
        if not self._caught_up:
            events = await self._missed(limit)
            self._caught_up = not events
            if events:
                return self._beyond(events)
        return self._beyond(await buffer.take(limit, wait_s))

    def close(self) -> None:
        """Follow no more."""
        if self._buffer is not None:
            self._fanout.detach(self._buffer)
            self._buffer = None

    def end(self) -> None:
        """Tell the follower to end."""
        self.ended = True
        if self._buffer is not None:
            self._buffer.break_off()

    async def _missed(self, limit: int) -> list[Event]:
        """Read what is beyond the position, oldest first."""
        if await self._feed.generation(self._database) != self.position.generation:
            raise PositionGone("The feed that gave this position is lost.")
        reads = [
            self._feed.events(self._database, partition, id_, limit)
            for partition, id_ in enumerate(self.position.ids)
        ]
        events = [event for events in await asyncio.gather(*reads) for event in events]
        return sorted(events, key=_age)[:limit]

    def _beyond(self, events: Sequence[Event]) -> list[tuple[Event, FeedPosition]]:
        told = []
        for event in events:
            if order_of(event.id) > order_of(self.position.ids[event.partition]):
                self.position = self.position.advanced(event.partition, event.id)
                told.append((event, self.position))
        return told


def _age(event: Event) -> tuple[int, int]:
    return order_of(event.id)


class Subscriptions:
    """All followers in this process."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._fanouts: dict[str, Fanout] = {}
        self._open: set[Subscription] = set()
        self._ended = False

    @property
    def count(self) -> int:
        """How many follow."""
        return len(self._open)

    async def open(self, database: str, position: FeedPosition) -> Subscription:
        """Follow a feed from a position on.

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
        """Follow no more."""
        self._open.discard(subscription)
        subscription.close()

    async def now(self, database: str) -> FeedPosition:
        """Return the position after all that is in a feed."""
        generation = await self._feed.generation(database)
        ids = [await self._feed.last(database, partition) for partition in range(PARTITIONS)]
        return FeedPosition(generation, tuple(ids))

    async def beginning(self, database: str) -> FeedPosition:
        """Return the position before all that is kept in a feed."""
        generation = await self._feed.generation(database)
        ids = [await self._feed.oldest(database, partition) for partition in range(PARTITIONS)]
        return FeedPosition(generation, tuple(ids))

    def end(self) -> None:
        """Tell all followers to end, and those who come."""
        self._ended = True
        for subscription in tuple(self._open):
            subscription.end()

    async def shut(self) -> None:
        """End the looks at the feeds."""
        self.end()
        for fanout in self._fanouts.values():
            fanout.close()
