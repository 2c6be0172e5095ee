"""A service in a separate process, with a feed; each test has its own database there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.service import Service
from tests.process.commands.shop import Shop
from tests.process.service import unique


@pytest.fixture
def shop(started: Service, tmp_path: Path) -> Shop:
    return Shop(started, tmp_path, unique("shop"))


@pytest.fixture
async def opened(shop: Shop) -> Shop:
    """A shop whose schema is in force."""
    await shop.open()
    return shop
