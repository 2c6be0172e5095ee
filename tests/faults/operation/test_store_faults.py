"""Killed, frozen or refusing stores: their classes fail, all others are served."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis import Redis

from tests.faults.caching.http_client import Answer, Connection
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.faults.stores import KINDS, RestartableStores
from tests.process.service import field_on

UPDATE = {"content-type": "application/vnd.portolan.update+json"}
MORE_THAN_BREAKER_THRESHOLD = 8
BOUND_S = 60
# One class on each system, and one split over two.
CLASSES: dict[str, Any] = {
    "sessions": {"fields": {"count": field_on("redis", "integer", default=0)}},
    "orders": {"fields": {"count": field_on("postgres", "integer", default=0)}},
    "notes": {"fields": {"count": field_on("mongo", "float", default=0)}},
    "articles": {
        "fields": {
            "count": field_on("redis", "integer", default=0, group="count"),
            "edits": field_on("postgres", "integer", default=0, group="edits"),
        }
    },
}
CLASS_OF = {"redis": "sessions", "postgres": "orders", "mongo": "notes"}


@dataclass
class Deployment:
    """A service on separate stores, with the counts of acknowledged writes."""

    service: Service
    stores: RestartableStores
    acknowledged: Counter[str] = field(default_factory=Counter)
    uncertain: Counter[str] = field(default_factory=Counter)

    async def request(self, method: str, target: str, body: Any = None) -> Answer:
        """Send a request over a new connection; the response must arrive within `BOUND_S`."""
        headers = UPDATE if method == "PATCH" else None
        async with asyncio.timeout(BOUND_S), Connection(self.service.data) as http:
            return await http.request(method, f"/v1/shop/{target}", body, headers)

    async def increment(self, class_name: str) -> Answer:
        body = {key: {"inc": 1} for key in CLASSES[class_name]["fields"]}
        response = await self.request("PATCH", f"{class_name}/counter", body)
        (self.acknowledged if response.status == 200 else self.uncertain)[class_name] += 1
        return response

    async def works(self, class_name: str) -> bool:
        return (await self.increment(class_name)).status == 200

    async def check(self, class_name: str) -> None:
        """Compare a counter with the acknowledged increments once its fragments agree."""
        await eventually(partial(self._agrees, class_name))
        count = (await self.request("GET", f"{class_name}/counter")).json()["count"]
        minimum = self.acknowledged[class_name]
        assert minimum <= count <= minimum + self.uncertain[class_name], class_name

    async def _agrees(self, class_name: str) -> bool:
        counter = (await self.request("GET", f"{class_name}/counter")).json()
        return bool(counter["count"] == counter.get("edits", counter["count"]))

    async def state(self, system: str) -> str:
        async with Connection(self.service.admin) as admin:
            response = await admin.request("GET", f"/admin/v1/systems/{system}")
        state: str = response.json()["state"]
        return state

    async def degraded(self) -> set[str]:
        """Return the systems that /ready reports as unavailable; the service must report ready."""
        async with asyncio.timeout(BOUND_S), Connection(self.service.admin) as admin:
            response = await admin.request("GET", "/ready")
        assert response.status == 200, response
        degraded = response.json()["degraded"]
        assert response.headers.get("portolan-degraded", "") == ", ".join(degraded)
        return set(degraded)


@pytest.fixture(scope="module")
def stores() -> Iterator[RestartableStores]:
    data_dir = Path(tempfile.mkdtemp(prefix="portolan-fault-"))
    own_stores = RestartableStores(data_dir)
    try:
        with own_stores.running():
            yield own_stores
    finally:
        shutil.rmtree(data_dir)


@pytest.fixture(scope="module")
async def deployment(stores: RestartableStores) -> AsyncIterator[Deployment]:
    configs = stores.configs()
    async with Service.on(configs, configs[1].url).running() as service:
        await service.favour()
        placements = await service.put_schema("shop", CLASSES)
        assert {placements[name] for name in CLASS_OF.values()} == set(KINDS)
        shop = Deployment(service, stores)
        for class_name in CLASSES:
            response = await shop.request("PUT", f"{class_name}/counter", {"count": 0})
            assert response.status == 201, response
        yield shop


@contextlib.contextmanager
def inject(deployment: Deployment, system: str, fault: str) -> Iterator[None]:
    with getattr(deployment.stores, fault)(system):
        yield


def classes_on(system: str) -> list[str]:
    """Return the classes that need a system."""
    own_class = CLASS_OF[system]
    return [own_class] if system == "mongo" else [own_class, "articles"]


async def assert_refused(deployment: Deployment, class_name: str) -> None:
    """Require that writes and reads are refused temporarily."""
    writes = [deployment.increment(class_name) for _ in range(MORE_THAN_BREAKER_THRESHOLD)]
    reads = [deployment.request("GET", f"{class_name}/counter") for _ in range(2)]
    for response in await asyncio.gather(*writes, *reads):
        assert_temporary(response)


def assert_temporary(response: Answer) -> None:
    assert response.status == 503, response
    assert response.problem()["type"] in ("/problems/unavailable", "/problems/outcome-unknown")
    assert int(response.headers["retry-after"]) >= 1


async def assert_served(deployment: Deployment, class_name: str) -> None:
    """Require that every operation on a class succeeds."""
    assert (await deployment.increment(class_name)).status == 200
    await deployment.check(class_name)
    response = await deployment.request("POST", class_name, {"count": 1})
    assert response.status == 201, response
    target = f"{class_name}/{response.json()['id']}"
    assert (await deployment.request("DELETE", target)).status == 204


async def assert_fragment_served(deployment: Deployment) -> None:
    """Require that a fragment on an available store can be written and read alone."""
    body = {"count": {"inc": 0}}
    assert (await deployment.request("PATCH", "articles/counter", body)).status == 200
    assert (await deployment.request("GET", "articles/counter?fields=count")).status == 200


async def has_state(expected: str, deployment: Deployment, system: str) -> bool:
    return await deployment.state(system) == expected


async def recovered(deployment: Deployment) -> bool:
    return not await deployment.degraded()


@pytest.mark.parametrize("fault", ["killed", "silent"])
@pytest.mark.parametrize("system", list(KINDS))
async def test_a_store_that_does_not_answer(
    deployment: Deployment, system: str, fault: str
) -> None:
    for class_name in CLASSES:
        await eventually(partial(deployment.works, class_name))
    with inject(deployment, system, fault):
        for class_name in classes_on(system):
            await assert_refused(deployment, class_name)
        await eventually(partial(has_state, "failing", deployment, system))
        for class_name in CLASSES.keys() - classes_on(system):
            await assert_served(deployment, class_name)
        if system == "postgres":
            await assert_fragment_served(deployment)
        assert system in await deployment.degraded()
    for class_name in classes_on(system):
        await eventually(partial(deployment.works, class_name))
        await deployment.check(class_name)
        await assert_served(deployment, class_name)
    await eventually(partial(recovered, deployment))
    assert await deployment.state(system) == "serving"


async def test_operations_of_a_batch_on_available_systems_succeed(deployment: Deployment) -> None:
    updates = [
        {"op": "update", "class": name, "id": "counter", "body": {"count": {"inc": 1}}}
        for name in CLASS_OF.values()
    ]
    with inject(deployment, "mongo", "killed"):
        response = await deployment.request("POST", "batch", {"operations": updates})
        assert [result["status"] for result in response.json()] == [200, 200, 503]
    for class_name in ("sessions", "orders"):
        deployment.acknowledged[class_name] += 1
        await deployment.check(class_name)
    deployment.uncertain["notes"] += 1
    await eventually(partial(deployment.works, "notes"))
    await deployment.check("notes")


@contextlib.asynccontextmanager
async def redis_refuses_writes(deployment: Deployment) -> AsyncIterator[None]:
    """Require a replica that Redis lacks: it then refuses writes (NOREPLICAS)."""
    with Redis.from_url(deployment.stores.configs()[0].url) as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            yield
        finally:
            client.config_set("min-replicas-to-write", 0)


@contextlib.asynccontextmanager
async def redis_is_full(deployment: Deployment) -> AsyncIterator[None]:
    with Redis.from_url(deployment.stores.configs()[0].url) as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextlib.asynccontextmanager
async def postgres_is_read_only(deployment: Deployment) -> AsyncIterator[None]:
    """Make PostgreSQL read-only, as a standby or a full disk does."""
    writable = {"default_transaction_read_only": "off"}
    connection = await asyncpg.connect(deployment.stores.configs()[1].url, server_settings=writable)
    try:
        await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await connection.execute("SELECT pg_reload_conf()")
        yield
    finally:
        await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()


@pytest.mark.parametrize(
    ("system", "fault"),
    [
        ("redis", redis_refuses_writes),
        ("redis", redis_is_full),
        ("postgres", postgres_is_read_only),
    ],
)
async def test_a_store_that_refuses_writes(deployment: Deployment, system: str, fault: Any) -> None:
    own_class = CLASS_OF[system]
    await eventually(partial(deployment.works, own_class))
    async with fault(deployment):
        await eventually(partial(refuses, deployment, own_class))
        for _ in range(MORE_THAN_BREAKER_THRESHOLD):
            assert_temporary(await deployment.increment(own_class))
        assert_temporary(await deployment.increment("articles"))
        await deployment.check(own_class)
        for class_name in CLASSES.keys() - classes_on(system):
            await assert_served(deployment, class_name)
    for class_name in classes_on(system):
        await eventually(partial(deployment.works, class_name))
        await deployment.check(class_name)


async def refuses(deployment: Deployment, class_name: str) -> bool:
    """Return whether writes are refused: a server reloads its settings with a delay."""
    return (await deployment.increment(class_name)).status == 503
