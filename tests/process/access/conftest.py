"""An installation with tenants whose limits a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from mediator.stores.port import SystemConfig
from tests.process.access.bounded import CLASSES, GENERAL_BYTES, Bounded
from tests.process.caching.guarded import Guarded, bearer, guarded
from tests.process.service import unique


@pytest.fixture(scope="module")
async def running(
    redis_config: SystemConfig,
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Guarded]:
    jobs: Path = tmp_path_factory.mktemp("jobs")
    general = {"tenant_body_bytes": GENERAL_BYTES}
    async with guarded(
        own_systems[:2], own_catalogue, redis_config.url, jobs, **general
    ) as installation:
        yield installation


@pytest.fixture
async def bounded(running: Guarded) -> Bounded:
    tenancy, tenant, database = running.container.mediator.tenancy, unique("t"), unique("db")
    await tenancy.put_tenant(tenant, {})
    await tenancy.own(tenant, database)
    key = bearer(await running.key("admin", tenant=tenant))
    path = f"/admin/v1/schemas/{database}"
    answer = await running.admin.put(path, json={"classes": CLASSES}, headers=key)
    assert answer.status_code == 200, answer.text
    return Bounded(running, tenant, database, key)
