"""The shop of a module's tests, and an HTTP service that its flows can invoke."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from redis.asyncio import Redis

from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows import http_services
from mediator.flows.http_services import HttpServices
from mediator.flows.queue import FlowKey
from mediator.stores.port import SystemConfig
from tests.process.flows.http_service import AnyLocalHost, HttpService, http_service
from tests.process.flows.remote import TOTAL_S
from tests.process.flows.shop import Shop, shop_on
from tests.process.service import unique


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a connection take as long as a request."""
    monkeypatch.setattr(http_services, "CONNECT_S", TOTAL_S)


@pytest.fixture(scope="module")
def services() -> HttpServices:
    """The client of the shop, whose flows can invoke this machine."""
    return HttpServices(AnyLocalHost(), TOTAL_S)


@pytest.fixture(scope="module")
async def shop(
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    services: HttpServices,
) -> AsyncIterator[Shop]:
    async with shop_on(
        own_systems, own_catalogue, redis_config.url, flow_services=services
    ) as new_shop:
        yield new_shop


@pytest.fixture
async def queue(redis_config: SystemConfig) -> AsyncIterator[RedisMessageQueue]:
    async with Redis.from_url(redis_config.url) as redis:
        yield RedisMessageQueue(redis)


@pytest.fixture
async def key(queue: RedisMessageQueue) -> AsyncIterator[FlowKey]:
    flow_key = FlowKey(unique(), unique())
    assert await queue.put_flow(flow_key, {}, 10.0, 1)
    yield flow_key
    await queue.drop_flow(flow_key)


@pytest.fixture
async def remote() -> AsyncIterator[HttpService]:
    async with http_service() as service:
        yield service


@pytest.fixture
async def client() -> AsyncIterator[HttpServices]:
    services = HttpServices(AnyLocalHost(), TOTAL_S)
    yield services
    await services.close()
