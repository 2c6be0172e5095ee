"""The server's sketch in Redis: `begin` with `end`, and `report_read`, of a hundred callers.

Compared with a script that does nothing, with as many keys and arguments, one call for each of the
sketch's, encoded and pipelined in the same way; and with the same steps as separate commands, where
each caller sends the commands that depend on no reply in a separate pipeline. Commands that all
callers send in shared pipelines are also reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from struct import Struct
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

import hiredis
from redis.asyncio import Redis

from benchmarks.harness.report import Options, Result, medians, per_second
from sketch.filter.hashing import positions
from sketch.filter.shape import FilterShape
from sketch.protocol.port import Partition, SketchLimits
from sketch.redis.server import PARTITION_KEYS, RedisSketch

__all__ = ["sketch_in_redis"]

_BATCH: Final = 100
_BAR_BARE: Final = 0.3
_BAR_SEPARATE: Final = 3.0
_WRITES: Final = "begin + end"
_READS: Final = "report_read"
_BARE: Final = "bare"
_NAMESPACE: Final = "portolan:bench"
_TTL_S: Final = 60.0
_LEASE_S: Final = 30
_SHAPE: Final = FilterShape()
_POSITIONS: Final = Struct(f">{_SHAPE.hashes}I")
_EMPTY_SCRIPT: Final = "return 1"

Command = tuple[Any, ...]
Names = Mapping[str, str]
Step = Callable[[Redis, Names, Sequence[str]], Awaitable[None]]


async def sketch_in_redis(options: Options, url: str) -> list[Result]:
    keys = [f"articles/{number}#text" for number in range(2_000 if options.quick else 10_000)]
    writes = (_plain_begins, _plain_ends)
    async with Redis.from_url(url) as redis:
        measures = {
            _WRITES: partial(_writes, redis, url, keys),
            _READS: partial(_reads, redis, url, keys),
            _BARE: partial(_bare, redis, keys),
            f"{_WRITES}, separate": partial(_commands, redis, keys, writes, 1),
            f"{_READS}, separate": partial(_commands, redis, keys, (_plain_reports,), 1),
            f"{_WRITES}, shared": partial(_commands, redis, keys, writes, _BATCH),
            f"{_READS}, shared": partial(_commands, redis, keys, (_plain_reports,), _BATCH),
        }
        seconds = await medians(3 if options.quick else 7, measures)
    calls = {name: len(keys) * (2 if _WRITES in name else 1) for name in measures}
    rates = {name: calls[name] / elapsed_s for name, elapsed_s in seconds.items()}
    options.log(f"sketch: {per_second(rates)}")
    return [result for name in (_WRITES, _READS) for result in _compare(name, rates)]


def _compare(name: str, rates: Mapping[str, float]) -> Iterator[Result]:
    baselines = (
        ("bare EVALSHA", rates[_BARE], _BAR_BARE),
        ("separate commands", rates[f"{name}, separate"], _BAR_SEPARATE),
        ("commands in shared pipelines", rates[f"{name}, shared"], None),
    )
    for baseline_name, baseline, bar in baselines:
        yield Result(f"{name}, against {baseline_name}", "calls/s", rates[name], baseline, bar)


async def _writes(redis: Redis, url: str, keys: Sequence[str]) -> float:
    """Return the seconds of writes of keys that caches hold."""
    async with _sketch_with_copies(redis, url, keys) as (sketch, partition):
        started = perf_counter()
        for batch in _split(keys, _BATCH):
            await asyncio.gather(*(sketch.begin(partition, (key,), f"t{key}") for key in batch))
            await asyncio.gather(*(sketch.end(partition, f"t{key}", {key: 7}) for key in batch))
        return perf_counter() - started


async def _reads(redis: Redis, url: str, keys: Sequence[str]) -> float:
    async with _sketch_with_copies(redis, url, keys) as (sketch, partition):
        started = perf_counter()
        await _report(sketch, partition, keys)
        return perf_counter() - started


@asynccontextmanager
async def _sketch_with_copies(
    redis: Redis, url: str, keys: Sequence[str]
) -> AsyncIterator[tuple[RedisSketch, Partition]]:
    limits = SketchLimits(max_ttl_s=2 * _TTL_S)
    sketch, partition = RedisSketch(url, limits, _SHAPE, _NAMESPACE), _some_partition()
    try:
        await sketch.create(partition)
        await _report(sketch, partition, keys)
        yield sketch, partition
    finally:
        await sketch.close()
        await redis.delete(*_names(partition).values())


async def _report(sketch: RedisSketch, partition: Partition, keys: Sequence[str]) -> None:
    for batch in _split(keys, _BATCH):
        await asyncio.gather(*(sketch.report_read(partition, (key,), _TTL_S) for key in batch))


async def _bare(redis: Redis, keys: Sequence[str]) -> float:
    """Return the seconds of as many calls of a script that does nothing."""
    sha, names = await redis.script_load(_EMPTY_SCRIPT), _names(_some_partition()).values()
    started = perf_counter()
    for batch in _split(keys, _BATCH):
        head = ("EVALSHA", sha, len(names), *names, "life", "", uuid4().hex, 100, "begin", 3)
        await _pipelined(redis, [(*head, f"t{key}", key, _pack_positions(key)) for key in batch])
    return perf_counter() - started


async def _commands(redis: Redis, keys: Sequence[str], steps: Sequence[Step], share: int) -> float:
    """Return the seconds of steps on each key, of keys that caches hold."""
    names = _names(_some_partition())
    await _take_step(_plain_reports, redis, names, keys, _BATCH)
    started = perf_counter()
    for batch in _split(keys, _BATCH):
        for take in steps:
            await _take_step(take, redis, names, batch, share)
    elapsed_s = perf_counter() - started
    await redis.delete(*names.values())
    return elapsed_s


async def _take_step(
    take: Step, redis: Redis, names: Names, keys: Sequence[str], share: int
) -> None:
    """Take a step for a hundred callers, of whom `share` send in one pipeline."""
    for batch in _split(keys, _BATCH):
        await asyncio.gather(*(take(redis, names, chunk) for chunk in _split(batch, share)))


async def _plain_begins(redis: Redis, names: Names, batch: Sequence[str]) -> None:
    queries: list[Command] = []
    for key in batch:
        queries += (("TIME",), ("HGET", names["writes"], f"t{key}"))
        queries.append(("ZSCORE", names["copies"], key))
    replies = await _pipelined(redis, queries)
    commands: list[Command] = []
    for number, key in enumerate(batch):
        commands.append(("ZADD", names["stale"], "GT", replies[3 * number + 2], key))
        commands.append(("HSETNX", names["members"], key, _pack_positions(key)))
        for bit in positions(key, _SHAPE):
            commands.append(("HINCRBY", names["counts"], bit, 1))
            commands.append(("SETBIT", names["bits"], bit, 1))
        commands.append(("HINCRBY", names["pending"], key, 1))
        commands.append(("HDEL", names["versions"], key))
        commands.append(("HSET", names["writes"], f"t{key}", key))
        commands.append(("ZADD", names["leases"], "NX", _LEASE_S, f"t{key}"))
    await _pipelined(redis, commands)


async def _plain_ends(redis: Redis, names: Names, batch: Sequence[str]) -> None:
    queries: list[Command] = []
    for key in batch:
        queries += (("TIME",), ("HGET", names["writes"], f"t{key}"))
        queries.append(("HINCRBY", names["pending"], key, -1))
        queries.append(("ZSCORE", names["copies"], key))
        queries.append(("ZSCORE", names["stale"], key))
        queries.append(("HGET", names["versions"], key))
    await _pipelined(redis, queries)
    commands: list[Command] = []
    for key in batch:
        commands.append(("HDEL", names["pending"], key))
        commands.append(("HSET", names["versions"], key, 7))
        commands.append(("HDEL", names["writes"], f"t{key}"))
        commands.append(("ZREM", names["leases"], f"t{key}"))
    await _pipelined(redis, commands)


async def _plain_reports(redis: Redis, names: Names, batch: Sequence[str]) -> None:
    queries: list[Command] = []
    for key in batch:
        queries += (("TIME",), ("HMGET", names["meta"], "uncacheable", "saturated"))
        queries.append(("HGET", names["versions"], key))
        queries.append(("HGET", names["pending"], key))
        queries.append(("ZCARD", names["copies"]))
    replies = await _pipelined(redis, queries)
    until = int(replies[0][0]) + _TTL_S
    commands: list[Command] = []
    for key in batch:
        commands.append(("ZADD", names["copies"], "GT", until, key))
        commands.append(("HSETNX", names["versions"], key, "f"))
    await _pipelined(redis, commands)


async def _pipelined(redis: Redis, commands: Sequence[Command]) -> list[Any]:
    pool: Any = redis.connection_pool
    connection = await pool.get_connection()
    try:
        packed = b"".join(map(hiredis.pack_command, commands))
        await connection.send_packed_command(packed, check_health=False)
        return [await connection.read_response() for _ in commands]
    finally:
        await pool.release(connection)


def _some_partition() -> Partition:
    return Partition(f"bench_{uuid4().hex[:8]}", "articles")


def _names(partition: Partition) -> Names:
    tag = f"{{{_NAMESPACE}:{partition.database}/{partition.class_name}}}"
    return {name: f"{tag}:{name}" for name in PARTITION_KEYS}


def _pack_positions(key: str) -> bytes:
    return _POSITIONS.pack(*positions(key, _SHAPE))


def _split(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for at in range(0, len(keys), size):
        yield keys[at : at + size]
