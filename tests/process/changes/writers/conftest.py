"""A bench for replicas that relay their records."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mediator.stores.port import SystemConfig
from tests.process.changes.writers.replicas import Bench


@pytest.fixture
async def bench(redis_config: SystemConfig) -> AsyncIterator[Bench]:
    bench = Bench(redis_config.url)
    yield bench
    keys = [key async for key in bench.redis.scan_iter(f"*{bench.database}*")]
    if keys:
        await bench.redis.delete(*keys)
    await bench.client.close()
    await bench.redis.aclose()
