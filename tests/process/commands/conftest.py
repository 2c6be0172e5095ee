"""A service in a process of its own, with a feed; each test has a database of its own there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.service import Service
from tests.process.commands.shop import Shop
from tests.process.service import unique
from tests.process.started import started_service


@pytest.fixture(scope="package")
async def started(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Service]:
    """One for all modules of this folder."""
    async with started_service(redis_config, postgresql_config, mongodb_config) as service:
        yield service


@pytest.fixture
def shop(started: Service, tmp_path: Path) -> Shop:
    return Shop(started, tmp_path, unique("shop"))


@pytest.fixture
async def opened(shop: Shop) -> Shop:
    """A shop whose schema is in force."""
    await shop.open()
    return shop
