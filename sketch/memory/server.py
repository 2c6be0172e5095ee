"""The server's sketch in memory, for one process: a second replica would not know of its writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import time_ns
from typing import Final

from sketch.filter.shape import FilterShape
from sketch.memory.partition import MemoryPartition
from sketch.protocol.bounds import by_partition, checked, checked_keys, granted_us, known_versions
from sketch.protocol.port import (
    BeginResult,
    CacheGrant,
    EndResult,
    FilterSnapshot,
    OnContention,
    Partition,
    PendingWrite,
    Purge,
    QueryRegistrations,
    ResultChanges,
    SketchLimits,
    SketchPartitionState,
)
from sketch.protocol.union import NO_GENERATION, full_bits, united

__all__ = ["MemorySketch", "system_clock"]

_REMOVED_AT_ONCE: Final = 10_000
"""Expired keys that one attempt to remove a partition forgets."""


def system_clock() -> int:
    """Return microseconds since 1970."""
    return time_ns() // 1_000


class MemorySketch:
    """A `ServerSketch` in memory.

    Args:
        clock: Returns microseconds since 1970.
        fresh: Whether there was never a sketch before this one. If there was, its grants are
            unknown, and until they have expired everything is revalidated.
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
        self._started_us = clock()
        self._partitions: dict[Partition, MemoryPartition] = {}

    async def create(self, partition: Partition) -> None:
        if partition not in self._partitions:
            now = self._clock()
            self._partitions[partition] = MemoryPartition(self.limits, self.shape, now, fresh=True)

    async def partitions(self, present: Collection[Partition]) -> set[Partition]:
        return {*self._partitions, *present}

    async def remove(self, partition: Partition) -> bool:
        if partition in self._partitions:
            now, it = self._clock(), self.partition(partition)
            it.expire(now, _REMOVED_AT_ONCE)
            if not it.is_spent(now):
                return False
            del self._partitions[partition]
        return True

    async def invalidate(self, partition: Partition) -> None:
        renewed = MemoryPartition(self.limits, self.shape, self._clock(), fresh=False)
        known = self.partition(partition)
        # Owed purges stay owed: caches may still hold those copies.
        renewed.purges, renewed.layout, renewed.schema = known.purges, known.layout, known.schema
        self._partitions[partition] = renewed

    async def layout(self, partition: Partition) -> str:
        return self.partition(partition).layout

    async def adopt(
        self,
        partition: Partition,
        before: str,
        after: str,
        *,
        invalidate: bool = False,
        schema: str = "",
    ) -> bool:
        it = self.partition(partition)
        if it.layout != before:
            return False
        if invalidate or (not before and it.hands_out):
            await self.invalidate(partition)
        self.partition(partition).layout, self.partition(partition).schema = after, schema
        return True

    async def begin(self, partition: Partition, keys: Sequence[str], token: str) -> BeginResult:
        own = checked_keys(keys)
        now, it = self._expired(partition, len(own))
        return BeginResult(tuple(it.begin(now, own, checked(token))), it.queries.sequence)

    async def end(
        self,
        partition: Partition,
        token: str,
        versions: Mapping[str, int],
        changes: ResultChanges | None = None,
    ) -> EndResult:
        known = known_versions(versions)
        now, it = self._expired(partition, len(versions))
        if changes is None:
            return it.end(now, token, known)
        for query in changes.queries:
            it.changed(now, checked(query))
        return it.close(now, token, known, changes)

    async def report_query(
        self, partition: Partition, key: str, ttl_s: float, schema: str = ""
    ) -> CacheGrant:
        now, it = self._expired(partition, 1)
        if schema != it.schema:
            return CacheGrant(now, adopted=False)
        return CacheGrant(now, it.report_query(now, checked(key), granted_us(self.limits, ttl_s)))

    async def registrations(self, partition: Partition, since: int) -> QueryRegistrations:
        return self.partition(partition).queries.since(since)

    async def invalidate_results(self, partition: Partition, queries: Sequence[str]) -> None:
        now, it = self._expired(partition, len(queries))
        for query in queries:
            it.changed(now, checked(query))

    async def report_read(
        self, partition: Partition, keys: Sequence[str], ttl_s: float
    ) -> CacheGrant:
        own = checked_keys(keys)
        now, it = self._expired(partition, len(own))
        ttl_us = it.report_read(now, own, granted_us(self.limits, ttl_s) if own else 0)
        fills = (fill for key in own if (fill := it.versions.fill_of(key)))
        return CacheGrant(
            now, ttl_us, tuple(map(it.versions.of, own)), ",".join(dict.fromkeys(fills))
        )

    async def fill(self, partition: Partition, fill: str, versions: Mapping[str, int]) -> None:
        tokens = frozenset(fill.split(","))
        _, it = self._expired(partition, len(versions))
        for key, version in known_versions(versions).items():
            it.versions.fill(key, tokens, version)

    async def snapshot(self, partitions: Sequence[Partition]) -> FilterSnapshot:
        """Without partitions: an empty filter."""
        if partitions:
            return united([self._snapshot(partition) for partition in partitions])
        empty = bytes(self.shape.bits // 8)
        return FilterSnapshot(self.shape, empty, self._clock(), NO_GENERATION, 0)

    async def orphans(
        self,
        partitions: Sequence[Partition],
        limit: int,
        passed: Mapping[Partition, int] | None = None,
    ) -> list[PendingWrite]:
        found: list[PendingWrite] = []
        for partition in self._kept(partitions):
            now, it = self._expired(partition, 1)
            orphans = it.orphans(now, (passed or {}).get(partition, 0), limit)
            found += (PendingWrite(partition, token, keys) for token, keys in orphans)
        return found

    async def take_purges(self, partitions: Sequence[Partition], limit: int) -> list[Purge]:
        taken: list[Purge] = []
        for partition in self._kept(partitions):
            now, it = self._expired(partition, 1)
            given = it.take_purges(now, limit - len(taken))
            taken += (Purge(partition, key, ticket) for key, ticket in given)
        return taken

    async def acknowledge_purges(self, purges: Sequence[Purge]) -> None:
        for partition, own in by_partition(purges).items():
            _, it = self._expired(partition, len(own))
            for purge in own:
                it.purges.acknowledge(purge.key, purge.ticket)

    async def states(self, partitions: Sequence[Partition]) -> list[SketchPartitionState]:
        now = self._clock()
        return [self.partition(partition).state(now, partition) for partition in partitions]

    async def listen(self, on_contention: OnContention) -> None:
        """Return at once: no write lease is cached."""

    async def close(self) -> None:
        """Nothing is open."""

    def partition(self, partition: Partition) -> MemoryPartition:
        """Return a partition; a new one is empty."""
        if partition not in self._partitions:
            # What came before this process may have handed out copies until it began, not later.
            started = self._started_us
            it = MemoryPartition(self.limits, self.shape, started, fresh=self._fresh)
            self._partitions[partition] = it
        return self._partitions[partition]

    def _kept(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return those that are there: looking after one that was removed does not begin it."""
        return [partition for partition in partitions if partition in self._partitions]

    def _expired(self, partition: Partition, keys: int) -> tuple[int, MemoryPartition]:
        """Return the time and a partition, from which some of what has expired is removed."""
        now, it = self._clock(), self.partition(partition)
        it.expire(now, max(self.limits.expired_at_once, 2 * keys))
        return now, it

    def _snapshot(self, partition: Partition) -> FilterSnapshot:
        now, it = self._expired(partition, self.limits.expired_at_once)
        all_stale = now < it.saturated_until
        return FilterSnapshot(
            shape=self.shape,
            bits=full_bits(self.shape) if all_stale else bytes(it.filter.bits),
            time_us=now,
            generation=it.generation,
            revision=0 if all_stale else it.filter.revision,
            revalidate_all=all_stale,
        )
