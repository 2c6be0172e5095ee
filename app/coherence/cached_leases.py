"""Cached write leases: repeated writes of a key that no cache holds do not call the sketch.

If `begin` finds that no cache can hold a key, the pending write stays in the sketch after its
acknowledgement, as a lease: later writes of the key by this replica use its token. Meanwhile the
key is not cacheable, so there is no copy that a write could make stale: to the sketch all of them
are one long write (docs/coherence.md, "Cached write leases"). A lease is released a moment after
its last write, when it is old, or on contention: as soon as any replica is to read its key.
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

_MAX_USABLE_S: Final = 6.0
_USABLE_SHARE: Final = 0.2
"""A cached lease accepts writes for this time, or for this share of its length, if that is less.

The rest of the lease must suffice for the last write to reach its store: if the sketch is lost,
nothing is cacheable for the length of a lease from then on, and this one began earlier. (While the
sketch exists, fences would suffice.) So the share is small, and the settings determine how much
time remains for the systems. Longer times would save little, as few writes still call the sketch;
and a reader of whom this replica is not notified waits for the end of the lease."""

_RELEASE_INTERVAL_S: Final = 0.25
_BATCH: Final = 100
"""Leases that are released before the event loop serves requests again."""

MAX_LEASES: Final = 2_000
"""Leases at a time. After a crash they are orphans, which recovery resolves individually."""

_AVOID_S: Final = 10.0
MAX_AVOIDED: Final = 10_000

_log = logging.getLogger("portolan.coherence")


@dataclass(slots=True)
class _Lease:
    """A pending write that is cached; times are the monotonic clock's.

    Attributes:
        token: The token of the first write, which later ones also use.
        started_s: The time before the sketch was called.
        used_s: When a write last began or ended under it.
        writes: How many are in progress, or have an unknown outcome.
        usable: Whether it accepts more writes.
        ending: Whether a call of the sketch to end it is in progress.
    """

    partition: Partition
    key: str
    token: WriteToken
    route: object
    started_s: float
    used_s: float
    writes: int = 1
    usable: bool = True
    ending: bool = False

    @property
    def is_releasable(self) -> bool:
        """Whether it has no writes any more, and is not being ended."""
        return not (self.usable or self.writes or self.ending)


class CachedLeases:
    """The write leases that this replica has cached.

    Attributes:
        usable_s: How long a lease accepts writes.
        idle_s: An unused lease is released after this time, or sooner if there are many.
        old_share: A lease is released at this share of `usable_s`, as a check can be late.
    """

    idle_s = 2.0
    old_share = 0.8

    def __init__(self, sketch: ServerSketch, clock: Clock) -> None:
        self._sketch = sketch
        self._clock = clock
        self.usable_s = min(_MAX_USABLE_S, _USABLE_SHARE * sketch.limits.lease_s)
        self._leases: dict[WriteToken, _Lease] = {}
        self._usable: dict[Partition, dict[str, _Lease]] = {}
        self._avoided: dict[tuple[Partition, str], float] = {}
        self._started = False

    def start(self) -> PeriodicTask:
        """Start to cache leases; return the task that releases them in time."""
        self._started = True
        return PeriodicTask("releasing cached write leases", _RELEASE_INTERVAL_S, self.release_due)

    async def stop(self) -> None:
        self._started = False
        await self.release_all()

    @property
    def tokens(self) -> Sequence[WriteToken]:
        return tuple(self._leases)

    def acquire(self, partition: Partition, key: str, route: object) -> WriteToken | None:
        """Return the token under which a key may be written; None: the sketch must be called.

        Each write that acquires a lease must `finish`, unless its outcome is unknown.
        """
        lease = self._usable.get(partition, {}).get(key)
        if lease is None:
            return None
        now_s = self._clock.monotonic()
        # Another layout; or the lease could end before this write reaches its store.
        if lease.route is not route or now_s - lease.started_s >= self.usable_s:
            self._close(lease)
            return None
        lease.writes += 1
        lease.used_s = now_s
        return lease.token

    def cache(
        self, partition: Partition, key: str, token: WriteToken, route: object, requested_s: float
    ) -> None:
        """Cache the lease of a write that began after `requested_s`, if it is worth it."""
        now_s, leases = self._clock.monotonic(), self._usable.setdefault(partition, {})
        if not self._started or len(self._leases) >= MAX_LEASES or key in leases:
            return
        if self.is_avoided(partition, key) or now_s - requested_s >= self.usable_s:
            return
        self._leases[token] = leases[key] = _Lease(partition, key, token, route, requested_s, now_s)

    async def finish(self, token: WriteToken) -> bool:
        """Record the end of a write; False: its lease is not cached, and must be ended."""
        lease = self._leases.get(token)
        if lease is None:
            return False
        lease.writes -= 1
        lease.used_s = self._clock.monotonic()
        if not lease.writes and not lease.usable:
            await self._release([lease])
        return True

    async def listen(self) -> None:
        """Release keys that other replicas are to read, until cancelled."""
        await self._sketch.listen(self._on_contention)

    async def _on_contention(self, partition: Partition, key: str) -> None:
        """Release the lease because of which a read, through any replica, was refused.

        A lease that has just begun may not be cached here yet, and must then not be cached.
        """
        if key:
            self.avoid(partition, key)
            await self.release(partition, [key])
        else:
            await self.release_class(partition)

    async def release(self, partition: Partition, keys: Sequence[str]) -> None:
        """Release keys that are about to be read; leases in use end with their writes."""
        leases_by_key = self._usable.get(partition, {})
        if leases := [lease for key in keys if (lease := leases_by_key.get(key)) is not None]:
            for lease in leases:
                self.avoid(partition, lease.key)
            await self._release_all(leases)

    async def release_class(self, partition: Partition) -> None:
        """Release all keys of a class, a result of which is about to be read."""
        if leases := list(self._usable.get(partition, {}).values()):
            await self._release_all(leases)

    def avoid(self, partition: Partition, key: str) -> None:
        """Cache no lease of a key for a while, because it is read."""
        avoided_key = (partition, key)
        self._avoided.pop(avoided_key, None)
        self._avoided[avoided_key] = self._clock.monotonic() + _AVOID_S
        if len(self._avoided) > MAX_AVOIDED:
            del self._avoided[next(iter(self._avoided))]

    def is_avoided(self, partition: Partition, key: str) -> bool:
        return self._clock.monotonic() < self._avoided.get((partition, key), 0.0)

    async def release_all(self) -> None:
        await self._release_all(list(self._leases.values()))

    async def release_due(self) -> None:
        """Release leases that are idle or old.

        A write with an unknown outcome is left to recovery once its lease is over.
        """
        now_s, idle_s = self._clock.monotonic(), self._idle_s()
        for lease in list(self._leases.values()):
            if now_s - lease.started_s >= self._sketch.limits.lease_s:
                self._close(lease)
                del self._leases[lease.token]
            elif self._is_due(lease, now_s, idle_s):
                self._close(lease)
        await self._release([lease for lease in self._leases.values() if lease.is_releasable])

    def _idle_s(self) -> float:
        """Return how long an idle lease may stay: keys written once must not fill the cache."""
        # The full time until half of the leases are used, then decreasing to zero.
        return self.idle_s * min(1.0, 2 * (1 - len(self._leases) / MAX_LEASES))

    def _is_due(self, lease: _Lease, now_s: float, idle_s: float) -> bool:
        idle = not lease.writes and now_s - lease.used_s >= idle_s
        return idle or now_s - lease.started_s >= self.old_share * self.usable_s

    def _close(self, lease: _Lease) -> None:
        """Accept no more writes under a lease."""
        if lease.usable:
            lease.usable = False
            del self._usable[lease.partition][lease.key]

    async def _release_all(self, leases: Sequence[_Lease]) -> None:
        """Release leases, those in use after their last writes."""
        # All are closed before the first await, so no write can acquire a lease being released.
        for lease in leases:
            self._close(lease)
        await self._release([lease for lease in leases if not lease.writes])

    async def _release(self, leases: Sequence[_Lease]) -> None:
        """Release leases; the sketch keeps those that fail, and they are retried."""
        # Before the first await: a concurrent `release_due` must not end them as well.
        for lease in leases:
            lease.ending = True
        remaining = iter(leases)
        try:
            while batch := list(islice(remaining, _BATCH)):
                await concurrently(map(self._end, batch))  # all of them, even if one fails
        except SketchUnavailable as error:
            _log.debug("cached write leases were not released: %s", error)
        finally:
            for lease in leases:
                lease.ending = False

    async def _end(self, lease: _Lease) -> None:
        # No versions: the writes may have ended in another order. No queries: none can have been
        # registered since the lease began.
        result = await self._sketch.end(lease.partition, lease.token.text, {})
        self._leases.pop(lease.token, None)
        if result is EndResult.CONTENDED:
            self.avoid(lease.partition, lease.key)
