"""Purges on their way from the queue to every cache (docs/protocol.md, "Writing")."""

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
        self._waiting.take(self._timing.clock(), taken)
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
        before = {CachedKey.of(it) for it in taken if self._waiting.is_confirmed(name, it)}
        left = [key for key in map(CachedKey.of, taken) if key not in before]
        return self._delivered(name, taken, before, sender.deliver(left))

    async def _delivered(
        self,
        name: str,
        taken: Sequence[Purge],
        before: set[CachedKey],
        delivery: Awaitable[frozenset[CachedKey]],
    ) -> frozenset[CachedKey]:
        keys = (await delivery) | before
        self._waiting.confirm(name, (purge for purge in taken if CachedKey.of(purge) in keys))
        return keys

    async def _acknowledge(
        self, taken: Sequence[Purge], sent: Sequence[asyncio.Task[frozenset[CachedKey]]]
    ) -> None:
        everywhere = frozenset.intersection(*await asyncio.gather(*sent))
        done = [purge for purge in taken if CachedKey.of(purge) in everywhere]
        try:
            if done:
                await self._queue.acknowledge_purges(done)
        except SketchUnavailable:
            self._on_event(PurgeQueueUnanswered())
        else:
            self._waiting.acknowledged(done)
        self._on_event(self._waiting.event(self._timing.clock()))
        self._woken.set()

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.look_every_s):
                await self._woken.wait()
