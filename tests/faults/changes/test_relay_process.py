"""The relay process: it is restarted when it exits, and ends with the service."""

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
        Service.on(configs, url, redis_config.url).running() as running_service,
    ):
        yield running_service


@pytest.fixture
async def service(own: Service) -> Service:
    """Return the service, restarted if an earlier test ended it."""
    if not own.up.is_set():
        await own.start()
    return own


async def _relays(service: Service) -> psutil.Process | None:
    children: Sequence[psutil.Process] = psutil.Process(service.pid).children()
    processes = [child for child in children if "app.service.relays" in child.cmdline()]
    return processes[0] if processes else None


async def _increment(service: Service, database: str, id_: str) -> None:
    with closing(Connection(service.data)) as http:
        path = f"/v1/{database}/counts/{id_}"
        assert (await http.request("PATCH", path, {"n": {"inc": 1}}, UPDATE)).status == 200


async def _has(service: Service, database: str, changes: int) -> bool:
    with closing(Connection(service.data)) as http:
        response = await http.request("GET", f"/v1/{database}/changes?after=beginning")
        return response.status == 200 and len(response.json()["changes"]) == changes


async def test_killed_relays_are_restarted_and_continue(service: Service) -> None:
    database = unique("db")
    await service.put_schema(database, CLASSES)
    with closing(Connection(service.data)) as http:
        response = await http.request("PUT", f"/v1/{database}/counts/a", {})
        assert response.status == 201
    await eventually(partial(_has, service, database, 1))
    first = await _relays(service)
    assert first is not None
    first.kill()
    await _increment(service, database, "a")
    await eventually(partial(_has, service, database, 2))
    second = await _relays(service)
    assert second is not None
    assert second.pid != first.pid


async def _post(service: Service, path: str, body: dict[str, Any]) -> Any:
    with closing(Connection(service.data)) as http:
        response = await http.request("POST", f"/v1/{path}", body)
        assert response.status in (200, 201), response.body
        return response.json()


async def _has_object(service: Service, path: str, n: int) -> bool:
    with closing(Connection(service.data)) as http:
        response = await http.request("GET", f"/v1/{path}")
        return response.status == 200 and response.json()["n"] == n


async def test_the_service_writes_results_of_standing_queries_in_the_relay_process(
    service: Service,
) -> None:
    database = unique("db")
    await service.put_schema(database, CLASSES)
    for name in ("x", "y"):
        stream = {"name": name, "attributes": {"k": "integer", "n": "integer"}}
        await _post(service, f"{database}/event-streams", stream)
    # Immediately: the relay process learns of the class a moment after the service.
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
        response = await http.request("GET", f"/v1/{path}")
        assert response.json()["state"] in ("building", "ready"), response.body
        return bool(response.json()["state"] == "ready")


async def test_relays_wait_while_the_redis_is_bound_to_another_installation(
    postgresql_config: SystemConfig,
) -> None:
    async with (
        _service_with_redis(postgresql_config) as (service, redis),
        connect(redis.url) as client,
    ):
        database = unique("db")
        await service.put_schema(database, CLASSES)
        await eventually(partial(_has_relays, service))
        await client.set(BOUND_TO, "another")
        await eventually(
            partial(_has_logged, service, "bound to another installation, another.", 2)
        )
        first = await _relays(service)
        assert first is not None
        first.kill()
        await eventually(
            partial(_has_logged, service, "bound to another installation, another.", 3)
        )
        await client.delete(BOUND_TO)
        with closing(Connection(service.data)) as http:
            assert (await http.request("PUT", f"/v1/{database}/counts/a", {})).status == 201
        await eventually(partial(_has, service, database, 1))
        assert await _has_logged(service, "it is started again", 1)


@asynccontextmanager
async def _service_with_redis(config: SystemConfig) -> AsyncIterator[tuple[Service, Server]]:
    with running("relays") as redis:
        async with (
            scratch_systems(config) as configs,
            scratch_catalogue(config) as url,
            Service.on(configs, url, redis.url).running() as running_service,
        ):
            yield running_service, redis


async def _has_logged(service: Service, text: str, times: int) -> bool:
    """Return whether a service and its relays have logged a text exactly `times` times."""
    return " ".join("".join(service.output).split()).count(text) == times


async def _has_relays(service: Service) -> bool:
    return await _relays(service) is not None


async def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it exited between the two calls
        return True


@pytest.mark.parametrize("kill", [True, False])
async def test_the_relays_end_with_the_service(service: Service, *, kill: bool) -> None:
    await eventually(partial(_has_relays, service))
    relays = await _relays(service)
    assert relays is not None
    await (service.kill() if kill else service.stop())
    await eventually(partial(_has_ended, relays))
