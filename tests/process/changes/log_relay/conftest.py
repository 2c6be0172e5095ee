"""A bench for the relay of logs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mediator.stores.port import SystemConfig
from tests.process.changes.log_relay.logs import Bench


@pytest.fixture
async def bench(redis_config: SystemConfig) -> AsyncIterator[Bench]:
    bench = Bench(redis_config.url)
    yield bench
    await bench.close()
