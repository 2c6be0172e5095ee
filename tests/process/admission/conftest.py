"""A replica on a catalogue of its own, which follows the rules that a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mediator.stores.port import SystemConfig
from tests.process.admission.replica import Replica, following
from tests.process.service import scratch_catalogue, service


@pytest.fixture
async def replica(postgresql_config: SystemConfig) -> AsyncIterator[Replica]:
    async with scratch_catalogue(postgresql_config) as url, service((), url) as started:
        opened = Replica(started, url)
        async with following(started):
            yield opened
        await opened.client.aclose()
