"""The server's sketch in Redis 6.2 or newer, or Valkey.

All keys of a partition share the hash tag ``{<namespace>:<database>/<class>}``, and each call of
the script touches the keys of one partition only, so partitions may lie on different nodes of a
cluster. Steps that callers take at the same time go in one round trip, and those of one partition
in one call of the script. The clock is the server's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from struct import Struct
from typing import Any, Final

from redis_connection import connection
from redis_connection.commands import arguments
from redis_connection.scripts import Script
from sketch.filter.hashing import positions
from sketch.filter.shape import FilterShape
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
    SketchUnavailable,
)
from sketch.protocol.union import NO_GENERATION, full_bits, unite
from sketch.redis.contention import RedisContention
from sketch.redis.names import ListedPartitions, name_of
from sketch.redis.script_client import ScriptCall, ScriptClient, connect
from sketch.redis.scripts import script_of
from sketch.redis.steps import StepCoalescer, StepResult

__all__ = ["PARTITION_KEYS", "RedisSketch"]

PARTITION_KEYS: Final = (
    "meta",
    "copies",
    "stale",
    "members",
    "counts",
    "bits",
    "pending",
    "writes",
    "leases",
    "versions",
    "purges",
    "owed",
    "queries",
)
_STEPS_VERSION: Final = 3
"""Part of every run id. It grows when steps of an older version would break promises of newer ones,
so that replicas of both invalidate partitions instead of relying on each other."""

_MAX_BITS: Final = 2**27
"""Four bytes for each bit's count must fit in one string of Redis."""
_MAX_CACHED_BITS: Final = 256
_EXPIRED_BY_SNAPSHOTS: Final = 1_000
_RESULTS_PER_STEP: Final = 500
_END_RESULTS: Final = {
    0: EndResult.DONE,
    1: EndResult.DONE,
    2: EndResult.BEHIND,
    3: EndResult.CONCURRENT,
    4: EndResult.CONTENDED,
}
"""By the replies of the steps that end a write; see ``writes.lua``."""

_TIMES_IN_STATE: Final = (5, 10)
"""The counts of ``state.lua`` that are scores of sorted sets, or null."""


@dataclass(frozen=True, slots=True)
class _Bits:
    generation: bytes
    revision: int
    bits: bytes


class RedisSketch:
    """A `ServerSketch` in Redis.

    Args:
        url: The address of Redis.
        limits: All replicas should have the same.
        shape: The shape of the filters; partitions of another shape are invalidated.

    Raises:
        ValueError: The namespace has a brace, or the filter has more than 2^27 bits.
    """

    kept_in = "redis"

    def __init__(
        self,
        url: str,
        limits: SketchLimits,
        shape: FilterShape,
        namespace: str = "portolan:sketch",
        timeout_s: float | None = None,
    ) -> None:
        if re.search("[{}]", namespace):
            raise ValueError("The namespace of the sketch must have no brace.")
        if shape.bits > _MAX_BITS:
            raise ValueError(f"A filter in Redis has at most {_MAX_BITS} bits.")
        self.limits = limits
        self.shape = shape
        timeout_s = connection.TIMEOUT_S if timeout_s is None else timeout_s
        self._redis = connect(url, timeout_s)
        fingerprint = f"{shape.bits}.{shape.hashes}.{shape.seed}.{_STEPS_VERSION}"
        self.client = ScriptClient(self._redis, self._script(), fingerprint, timeout_s)
        self._keys_of = lru_cache(maxsize=4096)(partial(_keys_of, namespace))
        self._steps = StepCoalescer(self.client, self._keys_of, limits.expired_at_once)
        self._positions = Struct(f">{shape.hashes}I")
        self._contention = RedisContention(self._redis, namespace)
        self._listed = ListedPartitions(self.client, namespace)
        self._bits: dict[Partition, _Bits] = {}

    def _script(self) -> Script:
        return script_of(self.limits, self.shape)

    async def create(self, partition: Partition) -> None:
        call = ScriptCall(self._keys_of(partition), 0, claim="new")
        (reply,) = await self.client.execute([call])
        if isinstance(reply, Exception):
            raise SketchUnavailable("The sketch refused.") from reply

    async def partitions(self, present: Collection[Partition]) -> set[Partition]:
        listed = await self._listed.read()
        await self._listed.add([partition for partition in present if partition not in listed])
        return listed.union(present)

    async def remove(self, partition: Partition) -> bool:
        removed = bool((await self._steps.take(partition, "remove", ())).value)
        if removed:
            await self._listed.discard(partition)
        return removed

    async def invalidate(self, partition: Partition) -> None:
        await self._steps.take(partition, "invalidate", ())
        # A class may be dropped before any process has listed it.
        await self._listed.add([partition])

    async def layout(self, partition: Partition) -> str:
        result = await self._steps.take(partition, "layout", ())
        return bytes(result.value).decode()

    async def adopt(
        self,
        partition: Partition,
        before: str,
        after: str,
        *,
        invalidate: bool = False,
        schema: str = "",
    ) -> bool:
        arguments = (before, after, int(invalidate), schema)
        return bool((await self._steps.take(partition, "adopt", arguments)).value)

    async def begin(self, partition: Partition, keys: Sequence[str], token: str) -> BeginResult:
        valid_keys = checked_keys(keys)
        arguments = self._with_positions(valid_keys, checked(token))
        result = await self._steps.take(partition, "begin", arguments, len(valid_keys))
        *flags, sequence, lease_cacheable = result.value
        held = [key for key, is_held in zip(valid_keys, flags, strict=True) if is_held]
        return BeginResult(tuple(dict.fromkeys(held)), sequence, bool(lease_cacheable) and not held)

    async def end(
        self,
        partition: Partition,
        token: str,
        versions: Mapping[str, int],
        changes: ResultChanges | None = None,
    ) -> EndResult:
        pairs = _pairs(known_versions(versions))
        if changes is None:
            arguments: list[Any] = [checked(token), *pairs]
            result = await self._steps.take(partition, "end", arguments, len(versions))
            return _END_RESULTS[result.value]
        flags = (int(changes.exclusive), int(changes.pauses_registration))
        arguments = [checked(token), changes.sequence, *flags, *pairs]
        closing = self._steps.take(partition, "close", arguments, len(pairs) // 2)
        if not changes.queries:  # a separate task takes as long as everything else here
            return _END_RESULTS[(await closing).value]
        # In one round trip: the changes are recorded before the write ends.
        *_, result = await _gather((*self._invalidations(partition, changes.queries), closing))
        return _END_RESULTS[result.value]

    async def report_query(
        self, partition: Partition, key: str, ttl_s: float, schema: str = ""
    ) -> CacheGrant:
        arguments = (schema, granted_us(self.limits, ttl_s), checked(key))
        now_us, ttl_us = await self._steps.take(partition, "report_query", arguments)
        return CacheGrant(now_us, max(ttl_us, 0), adopted=ttl_us >= 0)

    async def registrations(self, partition: Partition, since: int) -> QueryRegistrations:
        result = await self._steps.take(partition, "registrations", (since,))
        sequence, count, complete, newer = result.value
        # Scores are doubles in text, and may have an exponent.
        numbers = map(int, map(float, newer[1::2]))
        keys = (key.decode() for key in newer[::2])
        return QueryRegistrations(
            sequence, count, dict(zip(keys, numbers, strict=True)), bool(complete)
        )

    async def invalidate_results(self, partition: Partition, queries: Sequence[str]) -> None:
        await _gather(self._invalidations(partition, queries))

    async def report_read(
        self, partition: Partition, keys: Sequence[str], ttl_s: float
    ) -> CacheGrant:
        valid_keys = checked_keys(keys)
        arguments = (granted_us(self.limits, ttl_s) if valid_keys else 0, *valid_keys)
        result = await self._steps.take(partition, "report_read", arguments, len(valid_keys))
        ttl_us, *entries = result.value
        fills = (entry[1:].decode() for entry in entries if entry and entry.startswith(b"f"))
        return CacheGrant(
            result.now_us, ttl_us, tuple(map(_version, entries)), ",".join(dict.fromkeys(fills))
        )

    async def fill(self, partition: Partition, fill: str, versions: Mapping[str, int]) -> None:
        if fill and (storable := known_versions(versions)):
            await self._steps.take(partition, "fill", (fill, *_pairs(storable)), len(storable))

    async def snapshot(self, partitions: Sequence[Partition]) -> FilterSnapshot:
        """Without partitions: an empty filter."""
        if partitions:
            return unite(await _gather(self._snapshot(partition) for partition in partitions))
        empty = bytes(self.shape.bits // 8)
        return FilterSnapshot(self.shape, empty, await self.client.time_us(), NO_GENERATION, 0)

    async def orphans(
        self,
        partitions: Sequence[Partition],
        limit: int,
        offsets: Mapping[Partition, int] | None = None,
    ) -> list[PendingWrite]:
        skips = offsets or {}
        results = await _gather(
            self._steps.take(partition, "orphans", (skips.get(partition, 0), limit))
            for partition in partitions
        )
        return [
            PendingWrite(partition, token.decode(), tuple(key.decode() for key in keys))
            for partition, result in zip(partitions, results, strict=True)
            for token, *keys in result.value
        ]

    async def take_purges(self, partitions: Sequence[Partition], limit: int) -> list[Purge]:
        purges: list[Purge] = []
        queue = list(partitions)
        while queue and (remaining := limit - len(purges)) > 0:
            slice_, queue = queue[:remaining], queue[remaining:]
            # Equal shares; partitions with more purges share the remaining ones in the next round.
            share = remaining // len(slice_)
            results = await _gather(
                self._steps.take(partition, "take_purges", (share,)) for partition in slice_
            )
            for partition, result in zip(slice_, results, strict=True):
                pairs = zip(result.value[::2], result.value[1::2], strict=True)
                purges += (Purge(partition, key.decode(), ticket) for key, ticket in pairs)
                if len(result.value) == 2 * share:
                    queue.append(partition)
        return purges

    async def acknowledge_purges(self, purges: Sequence[Purge]) -> None:
        await _gather(
            self._steps.take(
                partition,
                "acknowledge_purges",
                [w for p in group for w in (p.key, p.ticket)],
                len(group),
            )
            for partition, group in by_partition(purges).items()
        )

    async def states(self, partitions: Sequence[Partition]) -> list[SketchPartitionState]:
        return await _gather(self._state(partition) for partition in partitions)

    async def listen(self, on_contention: OnContention) -> None:
        await self._contention.listen(on_contention)

    async def close(self) -> None:
        await self._steps.close()
        self.client.close()
        await self._redis.aclose()

    def _invalidations(
        self, partition: Partition, queries: Sequence[str]
    ) -> list[Coroutine[Any, Any, StepResult]]:
        slices = (
            queries[at : at + _RESULTS_PER_STEP] for at in range(0, len(queries), _RESULTS_PER_STEP)
        )
        return [
            self._steps.take(
                partition,
                "invalidate_results",
                self._with_positions(checked_keys(chunk)),
                len(chunk),
            )
            for chunk in slices
        ]

    def _with_positions(self, keys: Sequence[str], *first: str) -> list[Any]:
        """Return `first`, and the keys, each followed by the packed positions of its bits."""
        arguments: list[Any] = [*first]
        for key in keys:
            arguments += (key, self._positions.pack(*positions(key, self.shape)))
        return arguments

    async def _snapshot(self, partition: Partition) -> FilterSnapshot:
        cached = self._bits.get(partition)
        cached_version = (cached.generation, cached.revision) if cached else ("", "")
        result = await self._steps.take(
            partition, "snapshot", cached_version, _EXPIRED_BY_SNAPSHOTS // 2
        )
        generation, revision, all_stale, bits = result.value
        if all_stale:
            bits = full_bits(self.shape)
        elif bits is None:
            # Unchanged since `cached`: the script sends no bits.
            assert cached is not None
            bits = cached.bits
        else:
            if len(self._bits) >= _MAX_CACHED_BITS:
                self._bits.clear()
            self._bits[partition] = _Bits(generation, revision, bits)
        return FilterSnapshot(
            self.shape, bits, result.now_us, generation.decode(), revision, bool(all_stale)
        )

    async def _state(self, partition: Partition) -> SketchPartitionState:
        result = await self._steps.take(partition, "state", ())
        generation, *counts = result.value
        for at in _TIMES_IN_STATE:
            counts[at] = None if counts[at] is None else int(float(counts[at]))
        return SketchPartitionState(partition, result.now_us, generation.decode(), *counts)


def _keys_of(namespace: str, partition: Partition) -> bytes:
    tag = f"{{{namespace}:{name_of(partition)}}}"
    return arguments(*(f"{tag}:{name}" for name in PARTITION_KEYS))


async def _gather(calls: Iterable[Any]) -> list[Any]:
    return await asyncio.gather(*calls)


def _pairs(versions: Mapping[str, int]) -> list[Any]:
    return [word for pair in versions.items() for word in pair]


def _version(entry: bytes | None) -> int | None:
    return int(entry[1:]) if entry and entry.startswith(b"v") else None
