"""A service in a process of its own, with a feed, for tests that each have a database there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mediator.stores.port import SystemConfig
from tests.faults.service import Service
from tests.process.service import scratch_catalogue, scratch_systems

__all__ = ["started_service"]


@asynccontextmanager
async def started_service(
    redis: SystemConfig, postgresql: SystemConfig, mongodb: SystemConfig
) -> AsyncIterator[Service]:
    async with (
        scratch_systems(redis, postgresql, mongodb) as configs,
        scratch_catalogue(postgresql) as url,
        Service.on(configs, url, redis.url, sketch="off", relays="here").running() as service,
    ):
        await service.favour()
        yield service
