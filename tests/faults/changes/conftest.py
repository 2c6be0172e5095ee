"""Two replicas of a service, as processes that can be killed; their relays die with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.service import Service
from tests.process.service import scratch_catalogue, scratch_systems


@pytest.fixture
async def replicas(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> AsyncIterator[list[Service]]:
    async with AsyncExitStack() as stack:
        catalogue = await stack.enter_async_context(scratch_catalogue(postgresql_config))
        configs = await stack.enter_async_context(scratch_systems(redis_config, postgresql_config))
        services = [
            Service.on(configs, catalogue, redis_config.url, relays="here") for _ in range(2)
        ]
        for service in services:
            await stack.enter_async_context(service.running())
        yield services
