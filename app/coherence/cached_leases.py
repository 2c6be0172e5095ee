"""Cached write leases: what no cache holds is written again without a call of the sketch.

Where `begin` finds that no cache can hold a key, the pending write stays in the sketch after it was
acknowledged, as a lease: further writes of the key by this replica are done under its token. While
it stands nothing of the key becomes cacheable, so that there is no copy which a write could make
stale: to the sketch all of them are one write that takes long (docs/coherence.md, "Cached write
leases"). A lease is released a moment after its last write, once it is old, or on contention: as
soon as its key is to be read, through any replica.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mediator.base.clock import Clock
from mediator.base.concurrency import concurrently
from mediator.base.periodic_tasks import PeriodicTask
from mediator.model.guard import WriteToken
from sketch.protocol.port import EndResult, Partition, ServerSketch, SketchUnavailable

__all__ = ["CachedLeases"]

_USABLE_S: Final = 6.0
_USABLE_SHARE: Final = 0.2
"""A lease takes writes for so long, or this share of a write's lease, if that is less.

What is left of the lease must be enough for the last of them to reach its store: if the sketch is
lost, nothing is cacheable for the length of a lease from then on, and this one began before it. (As
long as the sketch is there fences would do.) So the share is small, and the settings say how much
is left for the systems. Longer ones would save little, as few writes call the sketch by now; and a
reader of whom this replica is not notified waits for their end."""

_ROUND_S: Final = 0.25
_BATCH: Final = 100
"""Leases that are released before the event loop goes on with requests."""

MOST_LEASES: Final = 2_000
"""Leases at a time. After a crash they are orphans, which recovery resolves one by one."""

_AVOIDED_S: Final = 10.0
MOST_AVOIDED: Final = 10_000

_log = logging.getLogger("portolan.coherence")


@dataclass(slots=True)
class _Lease:
    """A pending write that is kept; times are the monotonic clock's.

    Attributes:
        token: Of the write that began it; further ones use it, too.
        begun_s: Before the sketch was called.
        used_s: When a write began or ended under it.
        writes: How many are under way, or came to nothing that is known.
        usable: Whether it takes further writes.
        ending: Whether the sketch is being called to end it, and has not answered.
    """

    partition: Partition
    key: str
    token: WriteToken
    route: object
    begun_s: float
    used_s: float
    writes: int = 1
    usable: bool = True
    ending: bool = False

    @property
    def is_left(self) -> bool:
        """Whether nothing is done under it any more, and nobody is ending it."""
        return not (self.usable or self.writes or self.ending)


class CachedLeases:
    """The write leases that this replica has cached.

    Attributes:
        usable_s: For how long a lease takes writes.
        idle_s: A lease that was not used for so long is released; sooner, where there are many.
        old_share: A lease is released at this share of `usable_s`, as a round may be late.
    """

    idle_s = 2.0
    old_share = 0.8

    def __init__(self, sketch: ServerSketch, clock: Clock) -> None:
        self._sketch = sketch
        self._clock = clock
        self.usable_s = min(_USABLE_S, _USABLE_SHARE * sketch.limits.lease_s)
        self._leases: dict[WriteToken, _Lease] = {}
        self._usable: dict[Partition, dict[str, _Lease]] = {}
        self._avoided: dict[tuple[Partition, str], float] = {}
        self._started = False

    def start(self) -> PeriodicTask:
        """Cache leases from now on; return what releases them in time."""
        self._started = True
        return PeriodicTask("releasing cached write leases", _ROUND_S, self.release_due)

    async def stop(self) -> None:
        self._started = False
        await self.release_all()

    @property
    def tokens(self) -> Sequence[WriteToken]:
        return tuple(self._leases)

    def acquire(self, partition: Partition, key: str, route: object) -> WriteToken | None:
        """Return the token under which a key may be written; None: the sketch must be called.

        Each write that acquires a lease must `finish`, unless it is not known what became of it.
        """
        lease = self._usable.get(partition, {}).get(key)
        if lease is None:
            return None
        now_s = self._clock.monotonic()
        # Of another layout; or it might end before this write reaches its store.
        if lease.route is not route or now_s - lease.begun_s >= self.usable_s:
            self._close(lease)
            return None
        lease.writes += 1
        lease.used_s = now_s
        return lease.token

    def cache(
        self, partition: Partition, key: str, token: WriteToken, route: object, requested_s: float
    ) -> None:
        """Keep the lease of a write that has begun since `requested_s`, if that is worth it."""
        now_s, known = self._clock.monotonic(), self._usable.setdefault(partition, {})
        if not self._started or len(self._leases) >= MOST_LEASES or key in known:
            return
        if self.is_avoided(partition, key) or now_s - requested_s >= self.usable_s:
            return
        self._leases[token] = known[key] = _Lease(partition, key, token, route, requested_s, now_s)

    async def finish(self, token: WriteToken) -> bool:
        """Note that a write is done; False: its lease is not cached, and has to be ended."""
        lease = self._leases.get(token)
        if lease is None:
            return False
        lease.writes -= 1
        lease.used_s = self._clock.monotonic()
        if not lease.writes and not lease.usable:
            await self._release([lease])
        return True

    async def listen(self) -> None:
        """Release what is read through other replicas, until cancelled."""
        await self._sketch.listen(self._on_contention)

    async def _on_contention(self, partition: Partition, key: str) -> None:
        """Release the lease that a read was refused for, through any replica.

        One that was begun a moment ago may not be known here yet, and must not be cached then.
        """
        if key:
            self.avoid(partition, key)
            await self.release(partition, [key])
        else:
            await self.release_class(partition)

    async def release(self, partition: Partition, keys: Sequence[str]) -> None:
        """Release keys that are about to be read; leases in use end with their writes."""
        known = self._usable.get(partition, {})
        if leases := [lease for key in keys if (lease := known.get(key)) is not None]:
            for lease in leases:
                self.avoid(partition, lease.key)
            await self._release_all(leases)

    async def release_class(self, partition: Partition) -> None:
        """Release all keys of a class of which a result is about to be read."""
        if leases := list(self._usable.get(partition, {}).values()):
            await self._release_all(leases)

    def avoid(self, partition: Partition, key: str) -> None:
        """Cache no lease of a key for a while: it is being read."""
        avoided = (partition, key)
        self._avoided.pop(avoided, None)
        self._avoided[avoided] = self._clock.monotonic() + _AVOIDED_S
        if len(self._avoided) > MOST_AVOIDED:
            del self._avoided[next(iter(self._avoided))]

    def is_avoided(self, partition: Partition, key: str) -> bool:
        return self._clock.monotonic() < self._avoided.get((partition, key), 0.0)

    async def release_all(self) -> None:
        await self._release_all(list(self._leases.values()))

    async def release_due(self) -> None:
        """Release leases that were not used for a while, or are old.

        A write of which it is not known what it did is left to recovery, once its lease is over.
        """
        now_s, idle_s = self._clock.monotonic(), self._idle_s()
        for lease in list(self._leases.values()):
            if now_s - lease.begun_s >= self._sketch.limits.lease_s:
                self._close(lease)
                del self._leases[lease.token]
            elif self._is_due(lease, now_s, idle_s):
                self._close(lease)
        await self._release([lease for lease in self._leases.values() if lease.is_left])

    def _idle_s(self) -> float:
        """Return how long an idle lease may stay: keys written once must not fill the cache."""
        # In full until half of the leases are taken, then less and less, down to nothing.
        return self.idle_s * min(1.0, 2 * (1 - len(self._leases) / MOST_LEASES))

    def _is_due(self, lease: _Lease, now_s: float, idle_s: float) -> bool:
        idle = not lease.writes and now_s - lease.used_s >= idle_s
        return idle or now_s - lease.begun_s >= self.old_share * self.usable_s

    def _close(self, lease: _Lease) -> None:
        """Take no further writes under a lease."""
        if lease.usable:
            lease.usable = False
            del self._usable[lease.partition][lease.key]

    async def _release_all(self, leases: Sequence[_Lease]) -> None:
        """Release leases, those in use when their last writes are done."""
        # All are closed before the first await: no write can acquire one that is being released.
        for lease in leases:
            self._close(lease)
        await self._release([lease for lease in leases if not lease.writes])

    async def _release(self, leases: Sequence[_Lease]) -> None:
        """Release leases; the sketch keeps those that fail, and they are tried again."""
        # Before the first await: a round that comes between must not end them as well.
        for lease in leases:
            lease.ending = True
        left = iter(leases)
        try:
            while batch := list(islice(left, _BATCH)):
                await concurrently(map(self._end, batch))  # all to their end, if one fails too
        except SketchUnavailable as error:
            _log.debug("cached write leases were not released: %s", error)
        finally:
            for lease in leases:
                lease.ending = False

    async def _end(self, lease: _Lease) -> None:
        # No versions: the writes need not have ended in their order. Nor which queries are known:
        # none can have been registered since the lease was begun.
        result = await self._sketch.end(lease.partition, lease.token.text, {})
        self._leases.pop(lease.token, None)
        if result is EndResult.CONTENDED:
            self.avoid(lease.partition, lease.key)
