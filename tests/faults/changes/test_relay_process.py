"""The process of the relays: it is restarted when it ends, and does not outlive the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any

import psutil
import pytest

from mediator.coordination.binding import BOUND_TO
from mediator.coordination.connecting import connect
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.caching.redis_server import Server, running
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


async def _post(service: Service, path: str, body: dict[str, Any]) -> Any:
    with closing(Connection(service.data)) as http:
        answer = await http.request("POST", f"/v1/{path}", body)
        assert answer.status in (200, 201), answer.body
        return answer.json()


async def _has_object(service: Service, path: str, n: int) -> bool:
    with closing(Connection(service.data)) as http:
        answer = await http.request("GET", f"/v1/{path}")
        return answer.status == 200 and answer.json()["n"] == n


async def test_the_service_writes_what_queries_find_in_the_process_of_the_relays(
    service: Service,
) -> None:
    database = unique("db")
    await service.put_schema(database, CLASSES)
    for name in ("x", "y"):
        stream = {"name": name, "attributes": {"k": "integer", "n": "integer"}}
        await _post(service, f"{database}/event-streams", stream)
    # At once: the process of the relays learns of the class a moment later than the service.
    query = {
        "relations": ["x", "y"],
        "predicates": [["x.k", "y.k"]],
        "window_s": 10,
        "into": {"class": "counts", "values": {"n": "y.n"}},
    }
    id_ = (await _post(service, f"{database}/standing-queries", query))["id"]
    await eventually(partial(_is_ready, service, f"{database}/standing-queries/{id_}"))
    await _send(service, database, "x", 0)
    await _send(service, database, "y", 1)
    await eventually(partial(_has_object, service, f"{database}/counts/{id_}-1", 1))
    relays = await _relays(service)
    assert relays is not None
    relays.kill()
    await _send(service, database, "y", 2)
    await eventually(partial(_has_object, service, f"{database}/counts/{id_}-2", 2))


async def _send(service: Service, database: str, stream: str, n: int) -> None:
    tuples = [{"time_s": 1000, "values": {"k": 7, "n": n}}]
    await _post(service, f"{database}/event-streams/{stream}/tuples", {"tuples": tuples})


async def _is_ready(service: Service, path: str) -> bool:
    with closing(Connection(service.data)) as http:
        answer = await http.request("GET", f"/v1/{path}")
        assert answer.json()["state"] in ("building", "ready"), answer.body
        return bool(answer.json()["state"] == "ready")


async def test_relays_wait_while_the_redis_is_bound_to_another_installation(
    postgresql_config: SystemConfig,
) -> None:
    async with (
        _with_redis_of_its_own(postgresql_config) as (own, redis),
        connect(redis.url) as client,
    ):
        database = unique("db")
        await own.put_schema(database, CLASSES)
        await eventually(partial(_has_relays, own))
        await client.set(BOUND_TO, "another")
        await eventually(partial(_says, own, "bound to another installation, another.", 2))
        first = await _relays(own)
        assert first is not None
        first.kill()
        await eventually(partial(_says, own, "bound to another installation, another.", 3))
        await client.delete(BOUND_TO)
        with closing(Connection(own.data)) as http:
            assert (await http.request("PUT", f"/v1/{database}/counts/a", {})).status == 201
        await eventually(partial(_has, own, database, 1))
        assert await _says(own, "it is started again", 1)


@asynccontextmanager
async def _with_redis_of_its_own(config: SystemConfig) -> AsyncIterator[tuple[Service, Server]]:
    with running("relays") as redis:
        async with (
            scratch_systems(config) as configs,
            scratch_catalogue(config) as url,
            Service.on(configs, url, redis.url).running() as started,
        ):
            yield started, redis


async def _says(service: Service, text: str, times: int) -> bool:
    """Whether a service and its relays have logged something so often, and no more."""
    return " ".join("".join(service.output).split()).count(text) == times


async def _has_relays(service: Service) -> bool:
    return await _relays(service) is not None


async def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two
        return True


@pytest.mark.parametrize("kill", [True, False])
async def test_the_relays_end_with_the_service(service: Service, *, kill: bool) -> None:
    await eventually(partial(_has_relays, service))
    relays = await _relays(service)
    assert relays is not None
    await (service.kill() if kill else service.stop())
    await eventually(partial(_has_ended, relays))
