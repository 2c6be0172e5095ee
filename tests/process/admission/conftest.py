"""A replica on a catalogue of its own, which follows the rules that a test sets."""

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
    """One that follows no rules unless a test lets it."""
    # A worker of these tests reports its load once, and lives on.
    monkeypatch.setattr(admission, "_MAX_REPORT_AGE_S", 600.0)
    async with scratch_catalogue(postgresql_config) as url, service((), url) as started:
        opened = Replica(started, url)
        yield opened
        await opened.client.aclose()


@pytest.fixture
async def replica(idle: Replica) -> AsyncIterator[Replica]:
    async with following(idle.service):
        yield idle
