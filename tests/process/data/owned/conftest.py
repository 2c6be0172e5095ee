"""Drafts that belong to Ada and Bob."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from mediator.stores.port import SystemConfig
from tests.process.caching.guarded import guarded
from tests.process.data.owned.drafts import Drafts, fill


@pytest.fixture(scope="module")
async def drafts(
    redis_config: SystemConfig,
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Drafts]:
    jobs: Path = tmp_path_factory.mktemp("jobs")
    async with guarded(own_systems[:2], own_catalogue, redis_config.url, jobs) as running:
        yield await fill(running)
