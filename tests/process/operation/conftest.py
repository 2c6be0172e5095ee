"""Installations to back up, and to restore to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from tests.process.operation.backups import (
    Start,
)
from tests.process.service import (
    Service,
    scratch_catalogue,
    scratch_systems,
    service,
)


@pytest.fixture
async def installation(
    mediator: Service,
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[Start]:
    """Starts installations, each with its own catalogue and namespaces."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Service:
            enter = stack.enter_async_context
            url = await enter(scratch_catalogue(postgresql_config))
            configs = await enter(scratch_systems(redis_config, postgresql_config, mongodb_config))
            instance = await enter(service(configs, url, **options))
            await instance.favour()
            return instance

        yield start
