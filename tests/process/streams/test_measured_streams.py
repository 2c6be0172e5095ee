"""Reports of all streams for a scrape: only of the databases that have some."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from redis.asyncio import Redis

from mediator.base.clock import SystemClock
from mediator.coordination.event_streams import RedisEventStreams
from mediator.event_streams.port import EventStream, NewTuple, StreamKey
from mediator.event_streams.service import EventStreamService
from mediator.stores.port import SystemConfig
from tests.process.service import unique

STREAM = EventStream("prices", frozenset({"n"}), 3600.0, 5_000, {"n": "integer"})
NAME = STREAM.name


class CountingRedis(Redis):
    """Counts round trips."""

    trips = 0

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        self.trips += 1
        return await super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, *arguments: Any, **options: Any) -> Any:
        self.trips += 1
        return super().pipeline(*arguments, **options)


@pytest.fixture
async def redis(redis_config: SystemConfig) -> AsyncIterator[CountingRedis]:
    async with CountingRedis.from_url(redis_config.url) as client:
        assert isinstance(client, CountingRedis)
        yield client


@pytest.fixture
def streams(redis: CountingRedis) -> RedisEventStreams:
    return RedisEventStreams(redis)


@pytest.fixture
async def key(streams: RedisEventStreams) -> AsyncIterator[StreamKey]:
    """A stream with one tuple."""
    stream_key = StreamKey(unique(), NAME)
    assert await streams.declare(stream_key, STREAM, 1)
    await streams.append(stream_key, [NewTuple(1e9, b'{"n": 1}')])
    yield stream_key
    await streams.clear(stream_key.database)


async def lengths(streams: RedisEventStreams, *databases: str) -> Mapping[str, list[int]]:
    reports = await EventStreamService(streams, SystemClock()).reports(databases)
    return {
        id_: [report.last for report in stream_reports] for id_, stream_reports in reports.items()
    }


async def test_databases_without_streams_cost_nothing(
    redis: CountingRedis, streams: RedisEventStreams, key: StreamKey
) -> None:
    other_databases = [unique() for _ in range(200)]
    trips = []
    for databases in ([key.database], [key.database, *other_databases]):
        before = redis.trips
        assert await lengths(streams, *databases) == {key.database: [1]}
        trips.append(redis.trips - before)
    alone, with_others = trips
    assert with_others == alone


async def test_databases_without_streams_any_more_are_not_reported(
    streams: RedisEventStreams, key: StreamKey
) -> None:
    other = StreamKey(unique(), NAME)
    assert await streams.declare(other, STREAM, 1)
    both = (key.database, other.database)
    assert await lengths(streams, *both) == {key.database: [1], other.database: [0]}
    assert await streams.drop(other)
    assert await lengths(streams, *both) == {key.database: [1]}
    await streams.clear(key.database)
    assert await streams.databases(both) == {other.database}
    await streams.clear(other.database)
    assert await streams.databases(both) == set()
