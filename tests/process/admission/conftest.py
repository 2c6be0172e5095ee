"""A replica on a separate catalogue, which follows the rules that a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mediator.control import admission
from mediator.stores.port import SystemConfig
from tests.process.admission.replica import Replica, following
from tests.process.service import scratch_catalogue, service


@pytest.fixture
async def idle(
    postgresql_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Replica]:
    """A replica that does not follow rules on its own."""
    # A worker of these tests reports its load only once.
    monkeypatch.setattr(admission, "_MAX_REPORT_AGE_S", 600.0)
    async with scratch_catalogue(postgresql_config) as url, service((), url) as instance:
        idle_replica = Replica(instance, url)
        yield idle_replica
        await idle_replica.client.aclose()


@pytest.fixture
async def replica(idle: Replica) -> AsyncIterator[Replica]:
    async with following(idle.service):
        yield idle
