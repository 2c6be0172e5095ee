"""A harness for replicas that relay their records."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mediator.stores.port import SystemConfig
from tests.process.changes.writers.replicas import Harness


@pytest.fixture
async def harness(redis_config: SystemConfig) -> AsyncIterator[Harness]:
    harness = Harness(redis_config.url)
    yield harness
    keys = [key async for key in harness.redis.scan_iter(f"*{harness.database}*")]
    if keys:
        await harness.redis.delete(*keys)
    await harness.client.close()
    await harness.redis.aclose()
