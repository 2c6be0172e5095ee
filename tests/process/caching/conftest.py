"""The origin for tests of clients, and leases that only a test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from math import inf

import pytest

from app.coherence.cached_leases import CachedLeases
from app.settings.main import CacheSettings
from mediator.stores.port import SystemConfig
from tests.process.caching.cached_paper import Paper, paper_on
from tests.process.caching.coherent_origin import Origin, VirtualTime
from tests.process.caching.serving import Endpoint
from tests.process.caching.sketch_clients import OLD
from tests.process.service import unique


@pytest.fixture
def origin(endpoint: Endpoint) -> Origin:
    server = Origin(VirtualTime())
    server.objects["articles", "a1"] = dict(OLD)
    server.endpoint = endpoint
    return server


@pytest.fixture
def word() -> str:
    return unique("w")


@pytest.fixture
async def fresh(
    own_systems: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> AsyncIterator[Paper]:
    """A database whose results were never requested, with leases that are usable for long."""
    async with paper_on(own_systems, own_catalogue, redis_config.url, CacheSettings()) as opened:
        opened.caches.leases.usable_s = 600.0
        yield opened


@pytest.fixture
def long_leases(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the test ends cached leases."""
    monkeypatch.setattr(paper.caches.leases, "usable_s", 600.0)
    monkeypatch.setattr(CachedLeases, "idle_s", 600.0)
    monkeypatch.setattr(CachedLeases, "old_share", inf)
