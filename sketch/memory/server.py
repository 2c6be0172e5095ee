"""The server's sketch in memory, for one process: a second replica would not know of its writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import time_ns

from sketch.filter.bloom import FilterShape
from sketch.memory.partition import MemoryPart
from sketch.protocol.bounds import by_part, checked, checked_keys, known_versions
from sketch.protocol.port import (
    Begun,
    Changes,
    Ended,
    Grant,
    Part,
    PendingWrite,
    Purge,
    Registered,
    SketchLimits,
    Snapshot,
    TellWanted,
)
from sketch.protocol.states import PartState
from sketch.protocol.times import granted_us
from sketch.protocol.union import NO_INCARNATION, full_bits, united

__all__ = ["MemorySketch", "system_clock"]


def system_clock() -> int:
    """Return microseconds since 1970."""
    return time_ns() // 1_000


class MemorySketch:
    """See `sketch.protocol.port.ServerSketch` and `PurgeQueue`.

    Args:
        limits: What is promised and held.
        shape: Of the filters.
        clock: Tells microseconds since 1970.
        fresh: Whether there has never been a sketch before this one; if there was, its promises are
            unknown, and until they have run out everything is to be revalidated.
    """

    kept_in = "memory"

    def __init__(
        self,
        limits: SketchLimits,
        shape: FilterShape,
        clock: Callable[[], int] = system_clock,
        *,
        fresh: bool = False,
    ) -> None:
        self.limits = limits
        self.shape = shape
        self._clock = clock
        self._fresh = fresh
        self._begun_us = clock()
        self._parts: dict[Part, MemoryPart] = {}

    async def create(self, part: Part) -> None:
        """Begin a part that has never been: nothing of it is in any cache."""
        if part not in self._parts:
            now = self._clock()
            self._parts[part] = MemoryPart(self.limits, self.shape, now, fresh=True)

    async def renew(self, part: Part) -> None:
        """See the port."""
        renewed = MemoryPart(self.limits, self.shape, self._clock(), fresh=False)
        known = self._part(part)
        renewed.purges, renewed.layout, renewed.schema = known.purges, known.layout, known.schema
        self._parts[part] = renewed

    async def layout(self, part: Part) -> str:
        """See the port."""
        return self._part(part).layout

    async def adopt(
        self, part: Part, before: str, after: str, *, anew: bool = False, schema: str = ""
    ) -> bool:
        """See the port."""
        it = self._part(part)
        if it.layout != before:
            return False
        if anew or (not before and it.hands_out):
            await self.renew(part)
        self._part(part).layout, self._part(part).schema = after, schema
        return True

    async def begin(self, part: Part, keys: Sequence[str], token: str) -> Begun:
        """See the port."""
        own = checked_keys(keys)
        now, it = self._expired(part, len(own))
        return Begun(tuple(it.begin(now, own, checked(token))), it.queries.mark)

    async def end(
        self, part: Part, token: str, versions: Mapping[str, int], changes: Changes | None = None
    ) -> Ended:
        """See the port."""
        known = known_versions(versions)
        now, it = self._expired(part, len(versions))
        if changes is None:
            return it.end(now, token, known)
        for query in changes.queries:
            it.changed(now, checked(query))
        return it.close(now, token, known, changes)

    async def report_query(self, part: Part, key: str, ttl_s: float, schema: str = "") -> Grant:
        """See the port."""
        now, it = self._expired(part, 1)
        if schema != it.schema:
            return Grant(now, adopted=False)
        return Grant(now, it.report_query(now, checked(key), granted_us(self.limits, ttl_s)))

    async def registered(self, part: Part, since: int) -> Registered:
        """See the port."""
        return self._part(part).queries.since(since)

    async def changed(self, part: Part, queries: Sequence[str]) -> None:
        """See the port."""
        now, it = self._expired(part, len(queries))
        for query in queries:
            it.changed(now, checked(query))

    async def report_read(self, part: Part, keys: Sequence[str], ttl_s: float) -> Grant:
        """See the port."""
        own = checked_keys(keys)
        now, it = self._expired(part, len(own))
        ttl_us = it.report_read(now, own, granted_us(self.limits, ttl_s) if own else 0)
        fills = (fill for key in own if (fill := it.versions.fill_of(key)))
        return Grant(now, ttl_us, tuple(map(it.versions.of, own)), ",".join(dict.fromkeys(fills)))

    async def fill(self, part: Part, fill: str, versions: Mapping[str, int]) -> None:
        """See the port."""
        tokens = frozenset(fill.split(","))
        _, it = self._expired(part, len(versions))
        for key, version in known_versions(versions).items():
            it.versions.fill(key, tokens, version)

    async def snapshot(self, parts: Sequence[Part]) -> Snapshot:
        """See the port; no parts have an empty filter."""
        if parts:
            return united([self._snapshot(part) for part in parts])
        empty = bytes(self.shape.bits // 8)
        return Snapshot(self.shape, empty, self._clock(), NO_INCARNATION, 0)

    async def orphans(self, parts: Sequence[Part], limit: int) -> list[PendingWrite]:
        """See the port."""
        found: list[PendingWrite] = []
        for part in parts:
            now, it = self._expired(part, 1)
            orphans = it.orphans(now, limit - len(found))
            found += (PendingWrite(part, token, keys) for token, keys in orphans)
        return found

    async def expire(self, part: Part, most: int = 1_000) -> int:
        """Remove what has expired, and return how much there was; others do so in passing."""
        return self._part(part).expire(self._clock(), most)

    async def purges(self, parts: Sequence[Part], limit: int) -> list[Purge]:
        """See the port."""
        taken: list[Purge] = []
        for part in parts:
            now, it = self._expired(part, 1)
            keys = it.purges.take(now, limit - len(taken))
            taken += (Purge(part, key, now) for key in keys)
        return taken

    async def purged(self, purges: Sequence[Purge]) -> None:
        """See the port."""
        for part, own in by_part(purges).items():
            _, it = self._expired(part, len(own))
            for purge in own:
                it.purges.settle(purge.key, purge.ticket)

    async def states(self, parts: Sequence[Part]) -> list[PartState]:
        """See `sketch.protocol.states.Inspectable`."""
        now = self._clock()
        return [self._part(part).state(now, part) for part in parts]

    async def listen(self, tell: TellWanted) -> None:
        """Tell nothing: no mark lingers."""

    async def close(self) -> None:
        """See the port."""

    def _part(self, part: Part) -> MemoryPart:
        if part not in self._parts:
            # What came before this process may have handed out copies until it began, not later.
            begun = self._begun_us
            it = MemoryPart(self.limits, self.shape, begun, fresh=self._fresh)
            self._parts[part] = it
        return self._parts[part]

    def _expired(self, part: Part, keys: int) -> tuple[int, MemoryPart]:
        """Return the time and a part, from which some of what has expired is removed."""
        now, it = self._clock(), self._part(part)
        it.expire(now, max(self.limits.expired_at_once, 2 * keys))
        return now, it

    def _snapshot(self, part: Part) -> Snapshot:
        now, it = self._expired(part, self.limits.expired_at_once)
        all_stale = now < it.saturated_until
        return Snapshot(
            shape=self.shape,
            bits=full_bits(self.shape) if all_stale else bytes(it.filter.bits),
            time_us=now,
            incarnation=it.incarnation,
            generation=0 if all_stale else it.filter.generation,
            revalidate_all=all_stale,
        )
