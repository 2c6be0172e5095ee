"""The shop of a module's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from mediator.stores.port import SystemConfig
from tests.process.incremental_views.shop import Shop, shop_on


@pytest.fixture(scope="module")
async def shop(
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    late_replies: None,
) -> AsyncIterator[Shop]:
    async with shop_on(own_systems, own_catalogue, redis_config.url) as new_shop:
        yield new_shop
