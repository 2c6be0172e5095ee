"""Event streams: tuples that are checked and appended in a second, against bare Redis Streams.

Batches of one, 100 and 1,000 tuples are appended through the service: checked against the
declaration, numbered, appended as a whole, and recorded under the id of the batch. The baseline
sends the same bytes by XADD to a stream that is trimmed to the same length, a batch in a pipeline:
it checks nothing, and part of a batch may be lost. Both cost one round trip for a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final
from uuid import uuid4

import orjson
from redis.asyncio import Redis

from benchmarks.harness.report import Measured, Options, Result, medians, per_second, timed_s
from benchmarks.harness.shared_servers import embedded_redis
from mediator.base.clock import SystemClock
from mediator.coordination.event_streams import RedisEventStreams
from mediator.event_streams.declaration import parse_stream
from mediator.event_streams.port import StreamKey
from mediator.event_streams.service import EventStreamService

__all__ = ["run"]

_BATCHES: Final = (1, 100, 1_000)
_BAR: Final = 0.8
_MAX_LENGTH: Final = 1_000_000
_DECLARATION: Final[dict[str, Any]] = {
    "name": "bids",
    "attributes": {
        "auction": "integer",
        "bidder": "integer",
        "price": "integer",
        "channel": "string",
    },
}
"""The bids of Nexmark, by their scalars."""


async def run(options: Options) -> Measured:
    tuples = _bids(Random(options.seed), 2_000 if options.quick else 20_000)
    results = []
    async with embedded_redis() as server, Redis.from_url(server.url) as redis:
        target = await _declare(redis)
        for size in _BATCHES:
            selected = tuples[: max(500, len(tuples) // 20)] if size == 1 else tuples
            batches = [selected[start : start + size] for start in range(0, len(selected), size)]
            sides = {
                "event streams": partial(timed_s, partial(_append, *target, batches)),
                "XADD": partial(timed_s, partial(_add, redis, batches)),
            }
            times = await medians(3 if options.quick else 9, sides)
            rates = {name: len(selected) / seconds for name, seconds in times.items()}
            options.note(f"batches of {size:,}: {per_second(rates)}")
            name = f"tuples in batches of {size:,}, against pipelined XADD"
            bar = _BAR if size > 1 else None
            results.append(Result(name, "1/s", rates["event streams"], rates["XADD"], bar))
        version = (await redis.info("server"))["redis_version"]
    return Measured(results, {"redis": str(version)})


async def _declare(redis: Redis) -> tuple[EventStreamService, StreamKey]:
    streams, key = RedisEventStreams(redis), StreamKey(uuid4().hex, _DECLARATION["name"])
    await streams.declare(key, parse_stream(_DECLARATION), 1)
    return EventStreamService(streams, SystemClock()), key


async def _append(
    service: EventStreamService, key: StreamKey, batches: Sequence[Sequence[Any]]
) -> None:
    for batch in batches:
        await service.append(key.database, key, batch, None)


async def _add(redis: Redis, batches: Sequence[Sequence[Any]]) -> None:
    for batch in batches:
        pipeline = redis.pipeline(transaction=False)
        for bid in batch:
            text = b"%r %b" % (bid["time_s"], orjson.dumps(bid["values"]))
            pipeline.xadd("bids", {"t": text}, maxlen=_MAX_LENGTH)
        await pipeline.execute()


def _bids(draw: Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "time_s": 1.7e9 + number / 1000,
            "values": {
                "auction": draw.randrange(10_000),
                "bidder": draw.randrange(1_000),
                "price": draw.randrange(100, 10_000_000),
                "channel": draw.choice(("web", "app", "phone")),
            },
        }
        for number in range(count)
    ]
