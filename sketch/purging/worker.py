"""Purges on their way from the queue to every cache (docs/protocol.md, "Writing")."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Final

from sketch.protocol.port import Partition, Purge, PurgeQueue, SketchUnavailable
from sketch.purging.port import CachedKey, PurgeEvents, PurgeQueueUnanswered, Purger, PurgesWaiting
from sketch.purging.sender import PurgeSender, PurgingLimits, Timing

__all__ = ["Purging", "WaitingKeys"]


class Purging:
    """Takes purges that are due, and sends them to every purger.

    A purge is acknowledged once all purgers have confirmed it. What one of them does not confirm is
    handed out again by the queue, and sent to that one alone. Another replica that gets it sends it
    to all, which is harmless.

    Args:
        partitions: Returns the partitions that this process serves.

    Raises:
        ValueError: There are no purgers, so nothing would ever be purged.
    """

    def __init__(
        self,
        queue: PurgeQueue,
        purgers: Sequence[Purger],
        partitions: Callable[[], Sequence[Partition]],
        on_event: PurgeEvents,
        limits: PurgingLimits | None = None,
        timing: Timing | None = None,
    ) -> None:
        if not purgers:
            raise ValueError("Purging needs a purger.")
        self._queue = queue
        self._partitions = partitions
        self._on_event = on_event
        self._limits = limits or PurgingLimits()
        self._timing = timing or Timing()
        self._senders = [
            PurgeSender(purger, self._limits, on_event, self._timing) for purger in purgers
        ]
        self._waiting = WaitingKeys()
        self._woken = asyncio.Event()

    @property
    def standing(self) -> dict[str, bool]:
        """Whether the last request of each purger did not fail, by name."""
        return {sender.purger.name: sender.trusted for sender in self._senders}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as batches:
            while True:
                # Cleared before the look: a wake-up during it is not lost.
                self._woken.clear()
                taken = await self._take()
                if taken:
                    self._send(taken, batches)
                if len(taken) < self._limits.batch:
                    await self._rest()

    def wake(self) -> None:
        """Look at the queue now: something was added."""
        self._woken.set()

    async def purge_now(self, database: str, keys: Sequence[str], deadline_s: float) -> bool:
        """Purge keys before a write is acknowledged, as far as that is possible in time.

        To be called after the write has reached its store. The queue stays responsible for them:
        they are purged again, since a fill that is under way stores the old version again. A purger
        that failed recently is not waited for.

        Returns:
            Whether every purger has confirmed.
        """
        named = [CachedKey(database, key) for key in keys]
        try:
            async with asyncio.timeout(deadline_s):
                return all(await asyncio.gather(*(sender.send(named) for sender in self._senders)))
        except TimeoutError:
            return False

    async def close(self) -> None:
        for sender in self._senders:
            await sender.purger.close()

    async def _take(self) -> Sequence[Purge]:
        if not self._may_take():
            return ()
        try:
            taken = await self._queue.take_purges(self._partitions(), self._limits.batch)
        except SketchUnavailable:
            self._on_event(PurgeQueueUnanswered())
            return ()
        self._waiting.take(self._timing.clock(), map(_key_of, taken))
        return taken

    def _may_take(self) -> bool:
        """Whether a batch would be sent; purgers that failed are not waited for."""
        trusted = [sender for sender in self._senders if sender.trusted]
        if trusted:
            return all(sender.has_room for sender in trusted)
        return any(sender.has_room for sender in self._senders)

    def _send(self, taken: Sequence[Purge], batches: asyncio.TaskGroup) -> None:
        sent = [batches.create_task(self._deliver(sender, taken)) for sender in self._senders]
        batches.create_task(self._acknowledge(taken, sent))

    def _deliver(
        self, sender: PurgeSender, taken: Sequence[Purge]
    ) -> Coroutine[None, None, frozenset[CachedKey]]:
        """Reserve room for what a purger has not confirmed yet; the coroutine sends it.

        It returns the keys that the purger has confirmed, now or before.
        """
        name = sender.purger.name
        before = {_key_of(it) for it in taken if self._waiting.is_confirmed(name, it)}
        left = [key for key in map(_key_of, taken) if key not in before]
        return self._delivered(name, taken, before, sender.deliver(left))

    async def _delivered(
        self,
        name: str,
        taken: Sequence[Purge],
        before: set[CachedKey],
        delivery: Awaitable[frozenset[CachedKey]],
    ) -> frozenset[CachedKey]:
        keys = (await delivery) | before
        self._waiting.confirm(name, (purge for purge in taken if _key_of(purge) in keys))
        return keys

    async def _acknowledge(
        self, taken: Sequence[Purge], sent: Sequence[asyncio.Task[frozenset[CachedKey]]]
    ) -> None:
        everywhere = frozenset.intersection(*await asyncio.gather(*sent))
        done = [purge for purge in taken if _key_of(purge) in everywhere]
        try:
            if done:
                await self._queue.acknowledge_purges(done)
        except SketchUnavailable:
            self._on_event(PurgeQueueUnanswered())
        else:
            self._waiting.forget(everywhere)
        self._on_event(self._waiting.event(self._timing.clock()))
        self._woken.set()

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.look_every_s):
                await self._woken.wait()


def _key_of(purge: Purge) -> CachedKey:
    return CachedKey(purge.partition.database, purge.key)


_MOST: Final = 100_000
_FORGOTTEN_S: Final = 120.0
"""A key that was not handed out for so long was purged by another replica."""


class WaitingKeys:
    """Remembers keys that not all purgers have confirmed; the queue remembers what is owed."""

    def __init__(self) -> None:
        self._since: dict[CachedKey, float] = {}
        self._taken: dict[CachedKey, float] = {}
        self._tickets: dict[CachedKey, dict[str, int]] = {}
        self._repeated = 0

    def take(self, now: float, keys: Iterable[CachedKey]) -> None:
        """Record keys that the queue handed out, in the order of their last time."""
        for key in keys:
            if self._taken.pop(key, None) is not None:
                self._repeated += 1
            elif len(self._taken) >= _MOST:
                continue
            self._taken[key] = now
            self._since.setdefault(key, now)

    def is_confirmed(self, purger: str, purge: Purge) -> bool:
        """Whether a purger has confirmed this purge, and no earlier one of its key."""
        return self._tickets.get(_key_of(purge), {}).get(purger) == purge.ticket

    def confirm(self, purger: str, purges: Iterable[Purge]) -> None:
        for purge in purges:
            key = _key_of(purge)
            if key in self._taken:
                self._tickets.setdefault(key, {})[purger] = purge.ticket

    def forget(self, keys: Iterable[CachedKey]) -> None:
        for key in keys:
            for remembered in (self._taken, self._since, self._tickets):
                remembered.pop(key, None)

    def event(self, now: float) -> PurgesWaiting:
        """Return what is waiting; keys count as repeated once."""
        while self._taken:
            key, taken = next(iter(self._taken.items()))
            if now - taken < _FORGOTTEN_S:
                break
            self.forget([key])
        repeated, self._repeated = self._repeated, 0
        oldest = next(iter(self._since.values()), now)
        return PurgesWaiting(len(self._taken), now - oldest, repeated)
