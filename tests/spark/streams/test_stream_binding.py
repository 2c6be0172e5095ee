"""A query checks the coordination Redis's binding before each batch."""

from __future__ import annotations

import asyncio

import pytest

from mediator.coordination.binding import BOUND_TO, BoundToAnother
from mediator.coordination.connecting import connect
from mediator.stores.port import SystemConfig
from spark_jobs.sources.classes import CATALOGUE
from spark_jobs.sources.stream_request import COORDINATION
from spark_jobs.sources.streams import StreamData
from tests.faults.caching.redis_server import running
from tests.process.service import field_on, scratch_catalogue, scratch_systems, service


async def test_a_query_fails_once_redis_is_bound_to_another_installation(
    postgresql_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running("stream-binding") as server:
        async with (
            scratch_catalogue(postgresql_config) as catalogue,
            scratch_systems(postgresql_config) as configs,
            service(configs, catalogue, coordination_url=server.url) as mediator,
            connect(server.url) as redis,
        ):
            database = await mediator.put_schema(
                {"people": {"fields": {"name": field_on("postgres")}}}
            )
            monkeypatch.setenv(CATALOGUE, catalogue)
            monkeypatch.setenv(COORDINATION, server.url)
            source = StreamData({"database": database, "class": "people"})
            reader = source.streamReader(source.schema())
            try:
                # In threads, because the reader has its own event loop.
                offset = await asyncio.to_thread(reader.latestOffset)
                assert await asyncio.to_thread(reader.partitions, offset, offset) == []
                await redis.set(BOUND_TO, "another")
                with pytest.raises(BoundToAnother):
                    await asyncio.to_thread(reader.latestOffset)
                await redis.delete(BOUND_TO)
                assert await asyncio.to_thread(reader.latestOffset) == offset
            finally:
                await asyncio.to_thread(reader.stop)
