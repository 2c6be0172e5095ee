"""A mediator that maintains views, and databases with one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.redis_server import Server, running
from tests.process.service import Service, scratch_catalogue, scratch_systems, service, unique
from tests.process.views.views import BOUND_S, ViewClient, client_of, fields


@pytest.fixture(scope="module")
async def mirrored(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    late_replies: None,
) -> AsyncIterator[Service]:
    """A mediator that maintains views."""
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_systems(*configs) as systems,
        scratch_catalogue(postgresql_config) as url,
        service(systems, url, coordination_url=redis_config.url) as instance,
    ):
        await instance.favour()
        with pytest.MonkeyPatch.context() as patched:
            # Otherwise a machine that stalls for seconds interrupts a run.
            patched.setattr("mediator.materialisation.maintenance.LEASE_S", 120.0)
            patched.setattr("mediator.materialisation.service.SILENT_S", 120.0)
            yield instance


@pytest.fixture(scope="module")
async def view(mirrored: Service) -> AsyncIterator[ViewClient]:
    """A database with a complete view; each test has its own objects in it."""
    database = await mirrored.put_schema(
        {"articles": {"fields": fields()}},
        mode="microbatched",
        materialised_view={"system": "postgres", "staleness_s": BOUND_S},
    )
    async with client_of(mirrored, database) as client:
        view = ViewClient(mirrored, database, client)
        await view.wait_until_complete()
        yield view


@pytest.fixture(scope="module")
async def audited(mirrored: Service) -> AsyncIterator[ViewClient]:
    """A database with a bound so tight that missing copies are soon overdue."""
    database = await mirrored.put_schema(
        {"articles": {"fields": fields()}},
        mode="microbatched",
        materialised_view={"system": "postgres", "staleness_s": 0.5},
    )
    async with client_of(mirrored, database) as client:
        yield ViewClient(mirrored, database, client)


@pytest.fixture
def id_() -> str:
    """An object's id."""
    return unique("a")


@pytest.fixture
def shared() -> Iterator[Server]:
    """A coordination Redis for one test: the module's replica holds the relays' leases."""
    with running("shared-clock") as server:
        yield server
