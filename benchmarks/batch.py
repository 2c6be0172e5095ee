"""Batches of 100 counter updates over HTTP, against a pipeline of redis-py without any service.

The baseline has no HTTP, no validation, no versions and no outbox: the difference is the price of
Portolan's promises.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import Final

import redis.asyncio
import uvloop

from app.commands.demo.load import LoadLane, LoadProcess, SeparateProcess
from benchmarks.harness.report import Measured, Options, Result, medians
from benchmarks.harness.shared_servers import (
    BATCH,
    SharedService,
    database_on,
    shared_service,
    updates,
)

__all__ = ["run"]

_OBJECTS: Final = 1_000
_CONCURRENCY: Final = (1, 4)
_BAR: Final = 0.3


async def run(options: Options) -> Measured:
    async with SeparateProcess() as direct, LoadProcess() as load, shared_service() as running:
        running.require("redis")
        await running.tie()
        await running.fill("redis", _OBJECTS)
        results = [
            await _compare(options, running, load, direct, concurrency)
            for concurrency in _CONCURRENCY
        ]
        return Measured(results, await running.service.versions())


async def _compare(
    options: Options,
    running: SharedService,
    load: LoadProcess,
    direct: SeparateProcess,
    concurrency: int,
) -> Result:
    seconds = 0.5 if options.quick else 2.0
    lane = LoadLane(updates(database_on("redis"), _OBJECTS), concurrency, operations=BATCH)

    async def mediated() -> float:
        return (await running.drive(load, lane, seconds)).rate

    bare = partial(direct.call, _direct, running.servers["redis"].url, concurrency, seconds)
    rates = await medians(5 if options.quick else 15, {"mediated": mediated, "bare": bare})
    name = f"inc in batches of {BATCH} against a redis-py pipeline, {concurrency} under way"
    options.note(f"{name}: {rates['mediated']:,.0f}/s against {rates['bare']:,.0f}/s")
    return Result(name, "updates/s", rates["mediated"], rates["bare"], _BAR)


def _direct(url: str, concurrency: int, seconds: float) -> float:
    return uvloop.run(_pipelines(url, concurrency, seconds))


async def _pipelines(url: str, concurrency: int, seconds: float) -> float:
    """Return the updates/s of tasks that each send one pipeline after the other."""
    async with redis.asyncio.Redis.from_url(url) as client:
        begin = perf_counter()
        tasks = (_pipeline(client, begin + seconds, task) for task in range(concurrency))
        counts = await asyncio.gather(*tasks)
        return sum(counts) / (perf_counter() - begin)


async def _pipeline(client: redis.asyncio.Redis, end: float, first: int) -> int:
    updated = 0
    while perf_counter() < end:
        start = (first * BATCH + updated) % _OBJECTS
        pipeline = client.pipeline(transaction=False)
        for number in range(start, start + BATCH):
            pipeline.hincrby(f"direct:a{number}", "hits", 1)
        updated += len(await pipeline.execute())
    return updated
