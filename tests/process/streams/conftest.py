"""A database whose event streams are used over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from mediator.stores.port import SystemConfig
from tests.process.streams.market import Market, market_on


@pytest.fixture(scope="module")
async def market(
    own_systems: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> AsyncIterator[Market]:
    async with market_on(own_systems, own_catalogue, redis_config.url) as new_market:
        yield new_market
