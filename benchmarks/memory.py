"""Memory of the service over a million operations on a hundred thousand objects: it does not grow.

Only the stores' memory grows, by design: the outbox keeps changes for the feed. It is reported as
well.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psutil
import redis.asyncio

from app.commands.demo.load import LoadLane, LoadProcess
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import (
    BATCH,
    SharedService,
    database_on,
    shared_service,
    updates,
)

__all__ = ["run"]

_STEPS: Final = 5
_GROWTH_BAR: Final = 1.0
_CONNECTIONS: Final = 4
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class _Point:
    """Resident memory (bytes) after a number of operations."""

    operations: int
    resident: int


async def run(options: Options) -> Measured:
    objects, operations = (10_000, 100_000) if options.quick else (100_000, 1_000_000)
    async with LoadProcess() as load, shared_service() as running:
        running.require("redis")
        await running.tie()
        await running.fill("redis", objects)
        points = await _points(options, running, load, objects, operations)
        results = [*_results(points), *await _redis_results(running)]
        return Measured(results, await running.service.versions())


async def _points(
    options: Options, running: SharedService, load: LoadProcess, objects: int, operations: int
) -> list[_Point]:
    lane = LoadLane(updates(database_on("redis"), objects), _CONNECTIONS, operations=BATCH)
    points: list[_Point] = []
    acknowledged = 0
    for step in range(1, _STEPS + 1):
        while acknowledged < operations * step // _STEPS:
            acknowledged += (await running.drive(load, lane, 0.5)).acknowledged
        gc.collect()
        points.append(_Point(acknowledged, psutil.Process().memory_info().rss))
        options.log(f"{acknowledged:,} operations: {points[-1].resident / _MIB:,.1f} MiB resident")
    return points


def _results(points: list[_Point]) -> list[Result]:
    half, last = points[len(points) // 2], points[-1]
    growth = (last.resident - half.resident) / (last.operations - half.operations)
    name = "growth of the service in the second half"
    return [
        Result(name, "bytes/operation", growth, bar=_GROWTH_BAR, small_is_good=True),
        Result("resident memory of the service at the end", "MiB", last.resident / _MIB),
    ]


async def _redis_results(running: SharedService) -> list[Result]:
    async with redis.asyncio.Redis.from_url(running.servers["redis"].url) as client:
        info: Mapping[str, Any] = await client.info("memory")
        outboxes = [key async for key in client.scan_iter(match="*outbox", _type="stream")]
        streams = sum([await client.memory_usage(key) or 0 for key in outboxes])
        entries = sum([await client.xlen(key) for key in outboxes])
    return [
        Result("memory of Redis at the end", "MiB", info["used_memory"] / _MIB),
        Result("of it its outbox streams", "MiB", streams / _MIB),
        Result("memory of an outbox entry", "bytes", streams / max(entries, 1)),
    ]
