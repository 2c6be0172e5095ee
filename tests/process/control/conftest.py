"""Fixtures for the control plane's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mediator.control import membership, moves
from mediator.integrity import check, references
from mediator.stores.port import SystemConfig
from tests.process.service import Service, scratch_catalogue, service


@pytest.fixture(autouse=True)
def _long_timeouts() -> Iterator[None]:
    """Raise timeouts of seconds to a minute: a machine can stall for seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(membership, "TIMEOUT_S", 60.0)
        patched.setattr(moves, "MOVE_S", 60.0)
        patched.setattr(references, "WORK_S", 60.0)
        patched.setattr(check, "_FEED_TIMEOUT_S", 60.0)
        yield


@pytest.fixture
async def replica(
    mediator: Service, system_configs: Sequence[SystemConfig], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    """A second mediator on the same catalogue; all systems have been probed already."""

    async def refuse_probe(store: object) -> Any:
        raise AssertionError("findings for the same server version are reused")

    stack = AsyncExitStack()
    with monkeypatch.context() as patched:
        patched.setattr("mediator.control.opening.probe", refuse_probe)
        instance = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
    async with stack:
        yield instance


@pytest.fixture(scope="module")
async def with_feed(
    mediator: Service, postgresql_config: SystemConfig, redis_config: SystemConfig
) -> AsyncIterator[Service]:
    """An installation with a change feed."""
    configs = list(mediator.configs.values())
    async with (
        scratch_catalogue(postgresql_config) as url,
        service(configs, url, coordination_url=redis_config.url) as instance,
    ):
        await instance.favour()
        yield instance
