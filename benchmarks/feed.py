"""The change feed: the throughput of changes, and the lag of their delivery.

Throughput is compared with XADD and XREAD of the same documents, in pipelines of the same size: all
else that the feed does (cursors, fencing, partitions, encoding and decoding) is its cost.
Lag is the time from a store's clock at the write to a subscriber of the API, under load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

from redis.asyncio import Redis

from app.commands.demo.failed import Failed
from app.commands.demo.load import LoadLane, LoadProcess, SeparateProcess
from benchmarks.harness.report import Measured, Options, Result, medians
from benchmarks.harness.shared_servers import (
    CLASS,
    SharedService,
    database_on,
    hits,
    shared_service,
)
from benchmarks.harness.subscriber import lags_of_feed
from mediator.base.lease import Lease
from mediator.changes.document import change_from, document_of
from mediator.changes.feed import BEGINNING, PARTITIONS, LogBatch, LogSource
from mediator.coordination.connecting import client_of
from mediator.coordination.feed import RedisFeed
from mediator.coordination.leases import Leases
from mediator.embedded.port import Kind
from mediator.model.change import Change, change_id

__all__ = ["run"]

_BAR: Final = 0.5
_BATCH: Final = 500
_OBJECTS: Final = 1_000
_EXTRA_S: Final = 3.0
"""How long listeners wait after the load, so that they receive its last changes as well."""


async def run(options: Options) -> Measured:
    async with LoadProcess() as load, SeparateProcess() as listener, shared_service() as running:
        running.require("redis")
        results = [await _throughput(options, running.servers["redis"].url)]
        await running.tie()
        results += [await _lag(options, running, load, listener, kind) for kind in running.servers]
        return Measured(results, await running.service.versions())


async def _throughput(options: Options, url: str) -> Result:
    batches = 10 if options.quick else 40
    changes = [_change(number) for number in range(batches * _BATCH)]
    client = client_of(url)
    async with Redis.from_url(url) as redis:
        measures = {
            "feed": partial(_through_feed, redis, RedisFeed(redis, client), changes),
            "bare": partial(_bare, redis, changes),
        }
        times = await medians(3 if options.quick else 9, measures)
    await client.close()
    rates = {name: len(changes) / seconds for name, seconds in times.items()}
    options.note(f"feed: {rates['feed']:,.0f} changes/s against {rates['bare']:,.0f}")
    name = "changes through the feed, against XADD and XREAD"
    return Result(name, "changes/s", rates["feed"], rates["bare"], _BAR)


async def _through_feed(redis: Any, feed: RedisFeed, changes: Sequence[Change]) -> float:
    """Return the seconds to append changes to the feed and to read them."""
    database = f"bench_{uuid4().hex[:8]}"
    lease = Lease(f"bench:{database}", "token")
    await Leases(redis).acquire(lease.name, lease.token, 60.0)
    source, after, read = LogSource("redis", "0"), "", 0
    positions = [BEGINNING] * PARTITIONS
    started = perf_counter()
    for start in range(0, len(changes), _BATCH):
        entries = [(f"{n:020d}", c) for n, c in enumerate(changes[start : start + _BATCH], start)]
        upto = entries[-1][0]
        await feed.append(database, [LogBatch(source, after, upto, entries)], lease)
        after = upto
        for partition in range(PARTITIONS):
            events = await feed.read(database, partition, positions[partition], _BATCH)
            positions[partition] = events[-1][0] if events else positions[partition]
            read += len(events)
    seconds = perf_counter() - started
    if read != len(changes):
        raise Failed(f"{read} of {len(changes)} changes came back")
    await redis.delete(*[key async for key in redis.scan_iter(f"*{database}*", 1_000)])
    return seconds


async def _bare(redis: Any, changes: Sequence[Change]) -> float:
    """Return the seconds to write documents to a stream and to read them back."""
    stream, position, read = f"bench:{uuid4().hex}", b"0-0", 0
    started = perf_counter()
    for start in range(0, len(changes), _BATCH):
        pipeline = redis.pipeline(transaction=False)
        for change in changes[start : start + _BATCH]:
            pipeline.xadd(stream, {"k": change.class_name, "c": document_of(change)})
        await pipeline.execute()
        [[_, entries]] = await redis.xread({stream: position}, _BATCH)
        position = entries[-1][0]
        read += len([change_from(fields[b"c"], "bench") for _, fields in entries])
    seconds = perf_counter() - started
    await redis.delete(stream)
    if read != len(changes):
        raise Failed(f"{read} of {len(changes)} changes came back")
    return seconds


def _change(number: int) -> Change:
    return Change(
        change_id(uuid4().hex, "main"),
        "bench",
        CLASS,
        f"a{number % _OBJECTS}",
        "main",
        number,
        "update",
        {"hits": number},
        {"hits": number + 1},
        1_790_000_000_000_000 + number,
        "bench",
    )


async def _lag(
    options: Options,
    running: SharedService,
    load: LoadProcess,
    listener: SeparateProcess,
    kind: Kind,
) -> Result:
    """Measure how late a subscriber receives updates, at the highest rate of updates."""
    await running.fill(kind, _OBJECTS)
    database = database_on(kind)
    requests = hits(f"/v1/{database}/{CLASS}/a{number}" for number in range(_OBJECTS))
    seconds = 3.0 if options.quick else 20.0
    service, path = running.service, f"/v1/{database}/changes"
    listening = asyncio.create_task(
        listener.call(lags_of_feed, service.host, service.port, path, seconds + _EXTRA_S)
    )
    tally = await running.drive(load, LoadLane(requests, 4), seconds)
    lags = await listening
    if not lags:
        raise Failed(f"no update on {kind} was delivered")
    lags.sort()
    p99 = lags[int(len(lags) * 0.99)] * 1e3
    options.log(
        f"lag on {kind} at {tally.rate:,.0f} updates/s:"
        f" median {median(lags) * 1e3:.0f} ms, p99 {p99:.0f} ms"
    )
    return Result(f"lag of the feed of {kind} under load, p99", "ms", p99, small_is_good=True)
