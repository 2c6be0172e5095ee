"""A harness for the relay of logs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mediator.stores.port import SystemConfig
from tests.process.changes.log_relay.logs import Harness


@pytest.fixture
async def harness(redis_config: SystemConfig) -> AsyncIterator[Harness]:
    harness = Harness(redis_config.url)
    yield harness
    await harness.close()
