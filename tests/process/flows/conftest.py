"""The shop of a module's tests, and an HTTP service that its flows may invoke."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from mediator.flows import worker
from mediator.flows.http_services import HttpServices
from mediator.stores.port import SystemConfig
from tests.process.flows.http_service import AnyLocalHost, HttpService, http_service
from tests.process.flows.remote import TOTAL_S
from tests.process.flows.shop import Shop, shop_on


@pytest.fixture(scope="module")
async def shop(
    own_systems: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> AsyncIterator[Shop]:
    async with shop_on(own_systems, own_catalogue, redis_config.url) as opened:
        yield opened


@pytest.fixture
async def remote() -> AsyncIterator[HttpService]:
    async with http_service() as started:
        yield started


@pytest.fixture
async def client() -> AsyncIterator[HttpServices]:
    services = HttpServices(AnyLocalHost(), TOTAL_S)
    yield services
    await services.close()


@pytest.fixture
def local(shop: Shop, client: HttpServices, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The shop, whose flows may invoke this machine."""
    flows = shop.service.mediator.flows
    assert flows is not None
    monkeypatch.setattr(flows, "_services", client)
    monkeypatch.setattr(worker, "_RETRY_S", 0.001)
    return shop
