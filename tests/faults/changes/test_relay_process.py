"""The process of the relays: it is restarted when it ends, and does not outlive the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial

import psutil
import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique

UPDATE = {"content-type": "application/vnd.portolan.update+json"}
CLASSES = {"counts": {"fields": {"n": field_on("redis", "integer", default=0)}}}


@pytest.fixture(scope="module")
async def own(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> AsyncIterator[Service]:
    async with (
        scratch_systems(redis_config, postgresql_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        Service.on(configs, url, redis_config.url).running() as started,
    ):
        yield started


@pytest.fixture
async def service(own: Service) -> Service:
    """One that runs, whatever a test before has done to it."""
    if not own.up.is_set():
        await own.start()
    return own


async def _relays(service: Service) -> psutil.Process | None:
    children: Sequence[psutil.Process] = psutil.Process(service.pid).children()
    found = [child for child in children if "app.service.relays" in child.cmdline()]
    return found[0] if found else None


async def _count(service: Service, database: str, id_: str) -> None:
    with closing(Connection(service.data)) as http:
        path = f"/v1/{database}/counts/{id_}"
        assert (await http.request("PATCH", path, {"n": {"inc": 1}}, UPDATE)).status == 200


async def _has(service: Service, database: str, changes: int) -> bool:
    with closing(Connection(service.data)) as http:
        answer = await http.request("GET", f"/v1/{database}/changes?after=beginning")
        return answer.status == 200 and len(answer.json()["changes"]) == changes


async def test_killed_relays_are_restarted_and_continue(service: Service) -> None:
    database = unique("db")
    await service.put_schema(database, CLASSES)
    with closing(Connection(service.data)) as http:
        created = await http.request("PUT", f"/v1/{database}/counts/a", {})
        assert created.status == 201
    await eventually(partial(_has, service, database, 1))
    first = await _relays(service)
    assert first is not None
    first.kill()
    await _count(service, database, "a")
    await eventually(partial(_has, service, database, 2))
    second = await _relays(service)
    assert second is not None
    assert second.pid != first.pid


async def _has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("kill", [True, False])
async def test_the_relays_end_with_the_service(service: Service, *, kill: bool) -> None:
    async def there() -> bool:
        return await _relays(service) is not None

    await eventually(there)
    relays = await _relays(service)
    assert relays is not None
    await (service.kill() if kill else service.stop())
    await eventually(partial(_has_ended, relays))
