"""The bench of a module's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from mediator.stores.port import SystemConfig
from tests.process.service import Service, service
from tests.process.standing.bench import Bench, bench_on


@pytest.fixture(scope="module")
async def started(
    own_systems: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> AsyncIterator[Service]:
    async with service(own_systems, own_catalogue, coordination_url=redis_config.url) as running:
        await running.favour()
        yield running


@pytest.fixture
async def bench(started: Service) -> AsyncIterator[Bench]:
    async with bench_on(started) as opened:
        yield opened
