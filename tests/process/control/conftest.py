"""Fixtures of the tests of the control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from tests.process.caching.guarded import Guarded, guarded
from tests.process.service import Service, scratch_catalogue, service


@pytest.fixture
async def replica(
    mediator: Service, system_configs: Sequence[SystemConfig], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    """A second mediator on the same catalogue; it finds every system examined already."""

    async def unexpected(store: object) -> Any:
        raise AssertionError("the findings of the same server version are kept")

    stack = AsyncExitStack()
    with monkeypatch.context() as patched:
        patched.setattr("mediator.control.opening.probe", unexpected)
        started = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
    async with stack:
        yield started


@pytest.fixture(scope="module")
async def with_feed(
    mediator: Service, postgresql_config: SystemConfig, redis_config: SystemConfig
) -> AsyncIterator[Service]:
    """An installation with a feed."""
    configs = list(mediator.configs.values())
    async with (
        scratch_catalogue(postgresql_config) as url,
        service(configs, url, coordination_url=redis_config.url) as started,
    ):
        await started.favour()
        yield started


@pytest.fixture(scope="module")
async def installation(
    redis_config: SystemConfig,
    system_configs: Sequence[SystemConfig],
    own_catalogue: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Guarded]:
    """An installation that requires keys, on a catalogue of its own."""
    jobs: Path = tmp_path_factory.mktemp("jobs")
    async with guarded(system_configs[:2], own_catalogue, redis_config.url, jobs) as running:
        yield running
