"""Sends purges from the queue to every cache (docs/protocol.md, "Writing")."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress

from sketch.protocol.port import Partition, Purge, PurgeQueue, SketchUnavailable
from sketch.purging.port import CachedKey, PurgeEvents, PurgeQueueUnanswered, Purger
from sketch.purging.sender import PurgeSender, PurgingLimits, Timing
from sketch.purging.waiting import WaitingKeys

__all__ = ["Purging"]


class Purging:
    """Takes purges that are due, and sends them to every purger.

    A purge is acknowledged once all purgers have confirmed it. If one purger does not confirm it,
    the queue hands it out again, and only that purger gets it. Another replica that takes it sends
    it to all, which is harmless.

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
        self._wake_up = asyncio.Event()

    @property
    def standing(self) -> dict[str, bool]:
        """Whether the last request of each purger did not fail, by name."""
        return {sender.purger.name: sender.trusted for sender in self._senders}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as batches:
            while True:
                # Cleared before polling: a wake-up meanwhile is not lost.
                self._wake_up.clear()
                purges = await self._take()
                if purges:
                    self._send(purges, batches)
                if len(purges) < self._limits.batch:
                    await self._pause()

    def wake(self) -> None:
        """Poll the queue now: something was added."""
        self._wake_up.set()

    async def purge_now(self, database: str, keys: Sequence[str], deadline_s: float) -> bool:
        """Purge keys before a write is acknowledged, as far as that is possible in time.

        It must be called after the write has reached its store. The queue stays responsible for the
        keys and repeats their purges, since a fill that is under way stores the old version again.
        It does not wait for a purger that failed recently.

        Returns:
            Whether every purger has confirmed.
        """
        cached_keys = [CachedKey(database, key) for key in keys]
        try:
            async with asyncio.timeout(deadline_s):
                return all(
                    await asyncio.gather(*(sender.send(cached_keys) for sender in self._senders))
                )
        except TimeoutError:
            return False

    async def close(self) -> None:
        for sender in self._senders:
            await sender.purger.close()

    async def _take(self) -> Sequence[Purge]:
        if not self._can_send():
            return ()
        try:
            purges = await self._queue.take_purges(self._partitions(), self._limits.batch)
        except SketchUnavailable:
            self._on_event(PurgeQueueUnanswered())
            return ()
        self._waiting.take(self._timing.clock(), purges)
        return purges

    def _can_send(self) -> bool:
        """Whether a batch would be sent; failed purgers do not count while others work."""
        trusted = [sender for sender in self._senders if sender.trusted]
        if trusted:
            return all(sender.has_room for sender in trusted)
        return any(sender.has_room for sender in self._senders)

    def _send(self, purges: Sequence[Purge], batches: asyncio.TaskGroup) -> None:
        deliveries = [
            batches.create_task(self._deliver(sender, purges)) for sender in self._senders
        ]
        batches.create_task(self._acknowledge(purges, deliveries))

    def _deliver(
        self, sender: PurgeSender, purges: Sequence[Purge]
    ) -> Coroutine[None, None, frozenset[CachedKey]]:
        """Reserve room for keys that a purger has not confirmed yet; the coroutine sends them.

        It returns the keys that the purger has confirmed, now or before.
        """
        name = sender.purger.name
        confirmed = {
            CachedKey.of(purge) for purge in purges if self._waiting.is_confirmed(name, purge)
        }
        remaining = [key for key in map(CachedKey.of, purges) if key not in confirmed]
        return self._await_delivery(name, purges, confirmed, sender.deliver(remaining))

    async def _await_delivery(
        self,
        name: str,
        purges: Sequence[Purge],
        confirmed: set[CachedKey],
        delivery: Awaitable[frozenset[CachedKey]],
    ) -> frozenset[CachedKey]:
        keys = (await delivery) | confirmed
        self._waiting.confirm(name, (purge for purge in purges if CachedKey.of(purge) in keys))
        return keys

    async def _acknowledge(
        self, purges: Sequence[Purge], deliveries: Sequence[asyncio.Task[frozenset[CachedKey]]]
    ) -> None:
        confirmed_by_all = frozenset.intersection(*await asyncio.gather(*deliveries))
        confirmed = [purge for purge in purges if CachedKey.of(purge) in confirmed_by_all]
        try:
            if confirmed:
                await self._queue.acknowledge_purges(confirmed)
        except SketchUnavailable:
            self._on_event(PurgeQueueUnanswered())
        else:
            self._waiting.forget(confirmed)
        self._on_event(self._waiting.event(self._timing.clock()))
        self._wake_up.set()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.look_every_s):
                await self._wake_up.wait()
