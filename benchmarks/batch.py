"""Batches of 100 counter updates over HTTP, against a pipeline of redis-py without any service.

The baseline has no HTTP, no validation, no versions and no outbox: what it does not do is the price
of what Portolan promises.
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
_AT_ONCE: Final = (1, 4)
_BAR: Final = 0.3


async def run(options: Options) -> Measured:
    async with SeparateProcess() as direct, LoadProcess() as load, shared_service() as running:
        running.require("redis")
        await running.tie()
        await running.fill("redis", _OBJECTS)
        results = [await _compare(options, running, load, direct, at_once) for at_once in _AT_ONCE]
        return Measured(results, await running.service.versions())


async def _compare(
    options: Options,
    running: SharedService,
    load: LoadProcess,
    direct: SeparateProcess,
    at_once: int,
) -> Result:
    seconds = 0.5 if options.quick else 2.0
    lane = LoadLane(updates(database_on("redis"), _OBJECTS), at_once, operations=BATCH)

    async def mediated() -> float:
        return (await running.drive(load, lane, seconds)).rate

    bare = partial(direct.call, _direct, running.servers["redis"].url, at_once, seconds)
    rates = await medians(5 if options.quick else 15, {"mediated": mediated, "bare": bare})
    name = f"inc in batches of {BATCH} against a redis-py pipeline, {at_once} under way"
    options.note(f"{name}: {rates['mediated']:,.0f}/s against {rates['bare']:,.0f}/s")
    return Result(name, "updates/s", rates["mediated"], rates["bare"], _BAR)


def _direct(url: str, at_once: int, seconds: float) -> float:
    return uvloop.run(_pipelines(url, at_once, seconds))


async def _pipelines(url: str, at_once: int, seconds: float) -> float:
    """Return the updates/s of tasks that each send one pipeline after the other."""
    async with redis.asyncio.Redis.from_url(url) as client:
        begin = perf_counter()
        tasks = (_pipeline(client, begin + seconds, task) for task in range(at_once))
        done = await asyncio.gather(*tasks)
        return sum(done) / (perf_counter() - begin)


async def _pipeline(client: redis.asyncio.Redis, end: float, first: int) -> int:
    done = 0
    while perf_counter() < end:
        start = (first * BATCH + done) % _OBJECTS
        pipeline = client.pipeline(transaction=False)
        for number in range(start, start + BATCH):
            pipeline.hincrby(f"direct:a{number}", "hits", 1)
        done += len(await pipeline.execute())
    return done
