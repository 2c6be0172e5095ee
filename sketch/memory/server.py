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
from sketch.protocol.union import NO_GENERATION, full_bits, unite

__all__ = ["MemorySketch", "system_clock"]

_EXPIRED_AT_REMOVAL: Final = 10_000
"""Expired keys that one attempt to remove a partition forgets."""


def system_clock() -> int:
    """Return microseconds since 1970."""
    return time_ns() // 1_000


class MemorySketch:
    """A `ServerSketch` in memory.

    Args:
        clock: Returns microseconds since 1970.
        fresh: Whether this is the first sketch. The grants of an earlier one are unknown, and
            until they have expired everything is revalidated.
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
            now, target = self._clock(), self.partition(partition)
            target.expire(now, _EXPIRED_AT_REMOVAL)
            if not target.is_spent(now):
                return False
            del self._partitions[partition]
        return True

    async def invalidate(self, partition: Partition) -> None:
        new = MemoryPartition(self.limits, self.shape, self._clock(), fresh=False)
        old = self.partition(partition)
        # Owed purges stay owed: caches may still hold those copies.
        new.purges, new.layout, new.schema = old.purges, old.layout, old.schema
        self._partitions[partition] = new

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
        target = self.partition(partition)
        if target.layout != before:
            return False
        if invalidate or (not before and target.has_fresh_copies):
            await self.invalidate(partition)
        self.partition(partition).layout, self.partition(partition).schema = after, schema
        return True

    async def begin(self, partition: Partition, keys: Sequence[str], token: str) -> BeginResult:
        valid_keys = checked_keys(keys)
        now, target = self._expire(partition, len(valid_keys))
        return BeginResult(
            tuple(target.begin(now, valid_keys, checked(token))), target.queries.sequence
        )

    async def end(
        self,
        partition: Partition,
        token: str,
        versions: Mapping[str, int],
        changes: ResultChanges | None = None,
    ) -> EndResult:
        storable = known_versions(versions)
        now, target = self._expire(partition, len(versions))
        if changes is None:
            return target.end(now, token, storable)
        for query in changes.queries:
            target.invalidate_result(now, checked(query))
        return target.close(now, token, storable, changes)

    async def report_query(
        self, partition: Partition, key: str, ttl_s: float, schema: str = ""
    ) -> CacheGrant:
        now, target = self._expire(partition, 1)
        if schema != target.schema:
            return CacheGrant(now, adopted=False)
        return CacheGrant(
            now, target.report_query(now, checked(key), granted_us(self.limits, ttl_s))
        )

    async def registrations(self, partition: Partition, since: int) -> QueryRegistrations:
        return self.partition(partition).queries.since(since)

    async def invalidate_results(self, partition: Partition, queries: Sequence[str]) -> None:
        now, target = self._expire(partition, len(queries))
        for query in queries:
            target.invalidate_result(now, checked(query))

    async def report_read(
        self, partition: Partition, keys: Sequence[str], ttl_s: float
    ) -> CacheGrant:
        valid_keys = checked_keys(keys)
        now, target = self._expire(partition, len(valid_keys))
        ttl_us = target.report_read(
            now, valid_keys, granted_us(self.limits, ttl_s) if valid_keys else 0
        )
        fills = (fill for key in valid_keys if (fill := target.versions.fill_of(key)))
        return CacheGrant(
            now, ttl_us, tuple(map(target.versions.of, valid_keys)), ",".join(dict.fromkeys(fills))
        )

    async def fill(self, partition: Partition, fill: str, versions: Mapping[str, int]) -> None:
        tokens = frozenset(fill.split(","))
        _, target = self._expire(partition, len(versions))
        for key, version in known_versions(versions).items():
            target.versions.fill(key, tokens, version)

    async def snapshot(self, partitions: Sequence[Partition]) -> FilterSnapshot:
        """Without partitions: an empty filter."""
        if partitions:
            return unite([self._snapshot(partition) for partition in partitions])
        empty = bytes(self.shape.bits // 8)
        return FilterSnapshot(self.shape, empty, self._clock(), NO_GENERATION, 0)

    async def orphans(
        self,
        partitions: Sequence[Partition],
        limit: int,
        offsets: Mapping[Partition, int] | None = None,
    ) -> list[PendingWrite]:
        writes: list[PendingWrite] = []
        for partition in self._existing(partitions):
            now, target = self._expire(partition, 1)
            orphans = target.orphans(now, (offsets or {}).get(partition, 0), limit)
            writes += (PendingWrite(partition, token, keys) for token, keys in orphans)
        return writes

    async def take_purges(self, partitions: Sequence[Partition], limit: int) -> list[Purge]:
        purges: list[Purge] = []
        for partition in self._existing(partitions):
            now, target = self._expire(partition, 1)
            due = target.take_purges(now, limit - len(purges))
            purges += (Purge(partition, key, ticket) for key, ticket in due)
        return purges

    async def acknowledge_purges(self, purges: Sequence[Purge]) -> None:
        for partition, group in by_partition(purges).items():
            _, target = self._expire(partition, len(group))
            for purge in group:
                target.purges.acknowledge(purge.key, purge.ticket)

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
            # An earlier process may have handed out copies until this one started, not later.
            started = self._started_us
            target = MemoryPartition(self.limits, self.shape, started, fresh=self._fresh)
            self._partitions[partition] = target
        return self._partitions[partition]

    def _existing(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return the partitions that exist: maintenance does not create a removed one."""
        return [partition for partition in partitions if partition in self._partitions]

    def _expire(self, partition: Partition, keys: int) -> tuple[int, MemoryPartition]:
        """Return the time and a partition, after removing some of its expired keys."""
        now, target = self._clock(), self.partition(partition)
        target.expire(now, max(self.limits.expired_at_once, 2 * keys))
        return now, target

    def _snapshot(self, partition: Partition) -> FilterSnapshot:
        now, target = self._expire(partition, self.limits.expired_at_once)
        all_stale = now < target.saturated_until
        return FilterSnapshot(
            shape=self.shape,
            bits=full_bits(self.shape) if all_stale else bytes(target.filter.bits),
            time_us=now,
            generation=target.generation,
            revision=0 if all_stale else target.filter.revision,
            revalidate_all=all_stale,
        )
