"""The bench of a module's tests, and batches without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from redis.asyncio import Redis

from mediator.stores.port import SystemConfig
from tests.process.service import Service, service
from tests.process.standing.bench import Bench, bench_on
from tests.process.standing.published import QUERY, Published


@pytest.fixture(scope="module")
async def started(
    own_systems: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> AsyncIterator[Service]:
    async with service(own_systems, own_catalogue, coordination_url=redis_config.url) as running:
        await running.favour()
        yield running


@pytest.fixture
async def bench(started: Service) -> AsyncIterator[Bench]:
    async with bench_on(started) as new_bench:
        yield new_bench


@pytest.fixture
async def published(redis_config: SystemConfig) -> AsyncIterator[Published]:
    redis = Redis.from_url(redis_config.url)
    new_published = Published(redis)
    assert await new_published.results.put_query(new_published.key, QUERY, 1)
    assert await new_published.leases.acquire(
        new_published.lease.name, new_published.lease.token, 600
    )
    try:
        yield new_published
    finally:
        await new_published.results.clear(new_published.key.database)
        await redis.aclose()
