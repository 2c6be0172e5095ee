"""The server's sketch in Redis 6.2 or newer, or Valkey.

All keys of a partition share the hash tag ``{<namespace>:<database>/<class>}``, and each call of
the script touches the keys of one partition only, so partitions may lie on different nodes of a
cluster. Steps that callers take at the same time go in one round trip, and those of one partition
in one call of the script. The clock is the server's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any, Final
from urllib.parse import quote

from redis.asyncio import Redis

from redis_connection.commands import arguments
from redis_connection.scripts import Script
from sketch.filter.hashing import positions
from sketch.filter.shape import FilterShape
from sketch.protocol.bounds import by_partition, checked, checked_keys, known_versions
from sketch.protocol.port import (
    BeginResult,
    EndResult,
    Grant,
    OnContention,
    Partition,
    PendingWrite,
    Purge,
    QueryRegistrations,
    ResultChanges,
    SketchLimits,
    SketchUnavailable,
    Snapshot,
)
from sketch.protocol.states import PartitionState
from sketch.protocol.times import granted_us
from sketch.protocol.union import NO_GENERATION, full_bits, united
from sketch.redis.contention import RedisContention
from sketch.redis.queries import ENDS, RedisQueries
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
_STEPS: Final = 3
"""Part of every run id. Grows when steps of an older version would break what newer ones promise,
so that replicas of both invalidate partitions instead of relying on one another."""

_TIMEOUT_S: Final = 3.0
_MOST_BITS: Final = 2**27
"""Four bytes for each bit's count must fit in one string of Redis."""
_BITS_REMEMBERED: Final = 256
_EXPIRED_BY_SNAPSHOTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Bits:
    generation: bytes
    revision: int
    bits: bytes


class RedisSketch:
    """See `sketch.protocol.port.ServerSketch` and `PurgeQueue`.

    Args:
        redis: Its address, or a client whose settings are used for a connection of our own.
        limits: What is promised and held; all replicas should say the same.
        shape: Of the filters; partitions of another shape are invalidated.
        namespace: What the names of all keys begin with.
        timeout_s: Longest wait for replies.

    Raises:
        ValueError: The namespace has a brace, or the filter has more than 2^27 bits.
    """

    kept_in = "redis"

    def __init__(
        self,
        redis: Redis | str,
        limits: SketchLimits,
        shape: FilterShape,
        namespace: str = "portolan:sketch",
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        if re.search("[{}]", namespace):
            raise ValueError("The namespace of the sketch must have no brace.")
        if shape.bits > _MOST_BITS:
            raise ValueError(f"A filter in Redis has at most {_MOST_BITS} bits.")
        self.limits = limits
        self.shape = shape
        self._own = connect(redis, timeout_s) if isinstance(redis, str) else None
        client = self._own or redis
        assert isinstance(client, Redis)
        fingerprint = f"{shape.bits}.{shape.hashes}.{shape.seed}.{_STEPS}"
        self._client = ScriptClient(client, self._script(), fingerprint, timeout_s)
        self._keys_of = lru_cache(maxsize=4096)(_Names(namespace))
        self._steps = StepCoalescer(self._client, self._keys_of, limits.expired_at_once)
        self._positions = Struct(f">{shape.hashes}I")
        self._queries = RedisQueries(self._steps, shape)
        self._contention = RedisContention(client, namespace)
        self._bits: dict[Partition, _Bits] = {}

    def _script(self) -> Script:
        return script_of(self.limits, self.shape)

    async def create(self, partition: Partition) -> None:
        """Begin a partition that has never been: nothing of it is in any cache.

        A partition that is not there otherwise counts as lost. Does nothing to one that is there.
        """
        call = ScriptCall(self._keys_of(partition), 0, claim="new")
        (reply,) = await self._client.execute([call])
        if isinstance(reply, Exception):
            raise SketchUnavailable("The sketch refused.") from reply

    async def invalidate(self, partition: Partition) -> None:
        """See the port."""
        await self._steps.take(partition, "invalidate", ())

    async def layout(self, partition: Partition) -> str:
        """See the port."""
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
        """See the port."""
        arguments = (before, after, int(invalidate), schema)
        return bool((await self._steps.take(partition, "adopt", arguments)).value)

    async def begin(self, partition: Partition, keys: Sequence[str], token: str) -> BeginResult:
        """See the port."""
        arguments: list[Any] = [checked(token)]
        for key in (own := checked_keys(keys)):
            arguments += (key, self._positions.pack(*positions(key, self.shape)))
        result = await self._steps.take(partition, "begin", arguments, len(own))
        *flags, sequence, lease_cacheable = result.value
        held = [key for key, is_held in zip(own, flags, strict=True) if is_held]
        return BeginResult(tuple(dict.fromkeys(held)), sequence, bool(lease_cacheable) and not held)

    async def end(
        self,
        partition: Partition,
        token: str,
        versions: Mapping[str, int],
        changes: ResultChanges | None = None,
    ) -> EndResult:
        """See the port."""
        arguments = [checked(token), *_pairs(known_versions(versions))]
        if changes is None:
            result = await self._steps.take(partition, "end", arguments, len(versions))
            return ENDS[result.value]
        return await self._queries.close(partition, arguments[0], arguments[1:], changes)

    async def report_query(
        self, partition: Partition, key: str, ttl_s: float, schema: str = ""
    ) -> Grant:
        """See the port."""
        return await self._queries.report(partition, key, granted_us(self.limits, ttl_s), schema)

    async def registrations(self, partition: Partition, since: int) -> QueryRegistrations:
        """See the port."""
        return await self._queries.registrations(partition, since)

    async def invalidate_results(self, partition: Partition, queries: Sequence[str]) -> None:
        """See the port."""
        await self._queries.invalidate_results(partition, queries)

    async def report_read(self, partition: Partition, keys: Sequence[str], ttl_s: float) -> Grant:
        """See the port."""
        own = checked_keys(keys)
        arguments = (granted_us(self.limits, ttl_s) if own else 0, *own)
        result = await self._steps.take(partition, "report_read", arguments, len(own))
        ttl_us, *entries = result.value
        fills = (entry[1:].decode() for entry in entries if entry and entry.startswith(b"f"))
        return Grant(
            result.now_us,
            ttl_us,
            tuple(map(_version, entries)),
            ",".join(dict.fromkeys(fills)),
        )

    async def fill(self, partition: Partition, fill: str, versions: Mapping[str, int]) -> None:
        """See the port."""
        if fill and (known := known_versions(versions)):
            await self._steps.take(partition, "fill", (fill, *_pairs(known)), len(known))

    async def snapshot(self, partitions: Sequence[Partition]) -> Snapshot:
        """See the port; no partitions have an empty filter."""
        if partitions:
            return united(await _all(self._snapshot(partition) for partition in partitions))
        empty = bytes(self.shape.bits // 8)
        return Snapshot(self.shape, empty, await self._client.time_us(), NO_GENERATION, 0)

    async def orphans(self, partitions: Sequence[Partition], limit: int) -> list[PendingWrite]:
        """See the port."""
        results = await self._of_all(partitions, "orphans", limit)
        pending = [
            PendingWrite(partition, token.decode(), tuple(key.decode() for key in keys))
            for partition, result in zip(partitions, results, strict=True)
            for token, *keys in result.value
        ]
        return pending[:limit]

    async def expire(self, partition: Partition, most: int = _EXPIRED_BY_SNAPSHOTS) -> int:
        """Remove what has expired, and return how much there was; others do so in passing."""
        return int((await self._steps.take(partition, "expire", (most,))).value)

    async def take_purges(self, partitions: Sequence[Partition], limit: int) -> list[Purge]:
        """See the port."""
        taken: list[Purge] = []
        queue = list(partitions)
        while queue and (left := limit - len(taken)) > 0:
            slice_, queue = queue[:left], queue[left:]
            share = left // len(slice_)
            results = await self._of_all(slice_, "take_purges", share)
            for partition, result in zip(slice_, results, strict=True):
                taken += (Purge(partition, key.decode(), result.now_us) for key in result.value)
                if len(result.value) == share:
                    queue.append(partition)
        return taken

    async def acknowledge_purges(self, purges: Sequence[Purge]) -> None:
        """See the port."""
        await _all(
            self._steps.take(
                partition,
                "acknowledge_purges",
                [w for p in own for w in (p.key, p.ticket)],
                len(own),
            )
            for partition, own in by_partition(purges).items()
        )

    async def states(self, partitions: Sequence[Partition]) -> list[PartitionState]:
        """See `sketch.protocol.states.Inspectable`."""
        return await _all(self._state(partition) for partition in partitions)

    async def listen(self, on_contention: OnContention) -> None:
        """See the port."""
        await self._contention.listen(on_contention)

    async def close(self) -> None:
        """See the port."""
        await self._steps.close()
        self._client.close()
        if self._own is not None:
            await self._own.aclose()

    async def _snapshot(self, partition: Partition) -> Snapshot:
        known = self._bits.get(partition)
        has = (known.generation, known.revision) if known else ("", "")
        result = await self._steps.take(partition, "snapshot", has, _EXPIRED_BY_SNAPSHOTS // 2)
        generation, revision, all_stale, bits = result.value
        if all_stale:
            bits = full_bits(self.shape)
        elif bits is None:
            assert known is not None
            bits = known.bits
        else:
            self._remember(partition, _Bits(generation, revision, bits))
        return Snapshot(
            self.shape, bits, result.now_us, generation.decode(), revision, bool(all_stale)
        )

    async def _state(self, partition: Partition) -> PartitionState:
        result = await self._steps.take(partition, "state", ())
        generation, revision, keys, bits, copies, writes, lease, *rest = result.value
        saturated, uncacheable, purges, due, first_purge, size = rest
        return PartitionState(
            partition,
            result.now_us,
            generation.decode(),
            revision,
            keys,
            bits,
            copies,
            writes,
            _time(lease),
            saturated,
            uncacheable,
            purges,
            due,
            _time(first_purge),
            size,
        )

    def _remember(self, partition: Partition, bits: _Bits) -> None:
        if len(self._bits) >= _BITS_REMEMBERED:
            self._bits.clear()
        self._bits[partition] = bits

    async def _of_all(
        self, partitions: Sequence[Partition], name: str, argument: int
    ) -> list[StepResult]:
        return await _all(
            self._steps.take(partition, name, (argument,)) for partition in partitions
        )


class _Names:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __call__(self, partition: Partition) -> bytes:
        database, class_name = (quote(name, safe="") for name in partition)
        tag = f"{{{self._namespace}:{database}/{class_name}}}"
        return arguments(*(f"{tag}:{name}" for name in PARTITION_KEYS))


async def _all(calls: Iterable[Any]) -> list[Any]:
    return await asyncio.gather(*calls)


def _pairs(versions: Mapping[str, int]) -> list[Any]:
    return [word for pair in versions.items() for word in pair]


def _time(score: bytes | None) -> int | None:
    return None if score is None else int(float(score))


def _version(entry: bytes | None) -> int | None:
    return int(entry[1:]) if entry and entry.startswith(b"v") else None
