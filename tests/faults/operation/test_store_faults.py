"""Stores that are killed, stop answering or refuse: their classes fail, all others are served."""

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
from tests.faults.stores import KINDS, OwnStores
from tests.process.service import field_on

UPDATE = {"content-type": "application/vnd.portolan.update+json"}
MORE_THAN_THE_BREAKER_BEARS = 8
BOUND_S = 60
# The class of each system alone, and one that is split.
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
    """A service on stores of the test's own, with what it has acknowledged so far."""

    service: Service
    stores: OwnStores
    acknowledged: Counter[str] = field(default_factory=Counter)
    uncertain: Counter[str] = field(default_factory=Counter)

    async def request(self, method: str, target: str, body: Any = None) -> Answer:
        """Send a request over a connection of its own; the answer must come in a bounded time."""
        headers = UPDATE if method == "PATCH" else None
        async with asyncio.timeout(BOUND_S), Connection(self.service.data) as http:
            return await http.request(method, f"/v1/shop/{target}", body, headers)

    async def increment(self, class_name: str) -> Answer:
        body = {key: {"inc": 1} for key in CLASSES[class_name]["fields"]}
        answer = await self.request("PATCH", f"{class_name}/counter", body)
        (self.acknowledged if answer.status == 200 else self.uncertain)[class_name] += 1
        return answer

    async def works(self, class_name: str) -> bool:
        return (await self.increment(class_name)).status == 200

    async def check(self, class_name: str) -> None:
        """Compare a counter with what was acknowledged, once its fragments agree."""
        await eventually(partial(self._agrees, class_name))
        found = (await self.request("GET", f"{class_name}/counter")).json()["count"]
        least = self.acknowledged[class_name]
        assert least <= found <= least + self.uncertain[class_name], class_name

    async def _agrees(self, class_name: str) -> bool:
        found = (await self.request("GET", f"{class_name}/counter")).json()
        return bool(found["count"] == found.get("edits", found["count"]))

    async def state(self, system: str) -> str:
        async with Connection(self.service.admin) as admin:
            answer = await admin.request("GET", f"/admin/v1/systems/{system}")
        state: str = answer.json()["state"]
        return state

    async def degraded(self) -> set[str]:
        """Return the systems that /ready reports as unavailable; the service must report ready."""
        async with asyncio.timeout(BOUND_S), Connection(self.service.admin) as admin:
            answer = await admin.request("GET", "/ready")
        assert answer.status == 200, answer
        degraded = answer.json()["degraded"]
        assert answer.headers.get("portolan-degraded", "") == ", ".join(degraded)
        return set(degraded)


@pytest.fixture(scope="module")
def stores() -> Iterator[OwnStores]:
    data_dir = Path(tempfile.mkdtemp(prefix="portolan-fault-"))
    own = OwnStores(data_dir)
    try:
        with own.running():
            yield own
    finally:
        shutil.rmtree(data_dir)


@pytest.fixture(scope="module")
async def deployment(stores: OwnStores) -> AsyncIterator[Deployment]:
    configs = stores.configs()
    async with Service.on(configs, configs[1].url).running() as service:
        await service.favour()
        placed = await service.put_schema("shop", CLASSES)
        assert {placed[name] for name in CLASS_OF.values()} == set(KINDS)
        built = Deployment(service, stores)
        for class_name in CLASSES:
            created = await built.request("PUT", f"{class_name}/counter", {"count": 0})
            assert created.status == 201, created
        yield built


@contextlib.contextmanager
def broken(deployment: Deployment, system: str, fault: str) -> Iterator[None]:
    with getattr(deployment.stores, fault)(system):
        yield


def needing(system: str) -> list[str]:
    """Name the classes that need a system."""
    own = CLASS_OF[system]
    return [own] if system == "mongo" else [own, "articles"]


async def assert_refused(deployment: Deployment, class_name: str) -> None:
    """See that writes and reads are refused, for now."""
    writes = [deployment.increment(class_name) for _ in range(MORE_THAN_THE_BREAKER_BEARS)]
    reads = [deployment.request("GET", f"{class_name}/counter") for _ in range(2)]
    for answer in await asyncio.gather(*writes, *reads):
        assert_passing(answer)


def assert_passing(answer: Answer) -> None:
    assert answer.status == 503, answer
    assert answer.problem()["type"] in ("/problems/unavailable", "/problems/outcome-unknown")
    assert int(answer.headers["retry-after"]) >= 1


async def assert_served(deployment: Deployment, class_name: str) -> None:
    """See that everything can be done with a class."""
    assert (await deployment.increment(class_name)).status == 200
    await deployment.check(class_name)
    created = await deployment.request("POST", class_name, {"count": 1})
    assert created.status == 201, created
    target = f"{class_name}/{created.json()['id']}"
    assert (await deployment.request("DELETE", target)).status == 204


async def assert_fragment_served(deployment: Deployment) -> None:
    """The fragment of a split object whose store is available can be written by itself."""
    body = {"count": {"inc": 0}}
    assert (await deployment.request("PATCH", "articles/counter", body)).status == 200
    assert (await deployment.request("GET", "articles/counter?fields=count")).status == 200


async def is_(expected: str, deployment: Deployment, system: str) -> bool:
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
    with broken(deployment, system, fault):
        for class_name in needing(system):
            await assert_refused(deployment, class_name)
        await eventually(partial(is_, "failing", deployment, system))
        for class_name in CLASSES.keys() - needing(system):
            await assert_served(deployment, class_name)
        if system == "postgres":
            await assert_fragment_served(deployment)
        assert system in await deployment.degraded()
    for class_name in needing(system):
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
    with broken(deployment, "mongo", "killed"):
        answer = await deployment.request("POST", "batch", {"operations": updates})
        assert [result["status"] for result in answer.json()] == [200, 200, 503]
    for class_name in ("sessions", "orders"):
        deployment.acknowledged[class_name] += 1
        await deployment.check(class_name)
    deployment.uncertain["notes"] += 1
    await eventually(partial(deployment.works, "notes"))
    await deployment.check("notes")


@contextlib.asynccontextmanager
async def redis_refuses_writes(deployment: Deployment) -> AsyncIterator[None]:
    """Let Redis require a replica that it has not: it then refuses to write (NOREPLICAS)."""
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
    """Let PostgreSQL serve reads only, as a standby or a full disk makes it."""
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
    ("system", "refusing"),
    [
        ("redis", redis_refuses_writes),
        ("redis", redis_is_full),
        ("postgres", postgres_is_read_only),
    ],
)
async def test_a_store_that_refuses_writes(
    deployment: Deployment, system: str, refusing: Any
) -> None:
    own = CLASS_OF[system]
    await eventually(partial(deployment.works, own))
    async with refusing(deployment):
        await eventually(partial(refuses, deployment, own))
        for _ in range(MORE_THAN_THE_BREAKER_BEARS):
            assert_passing(await deployment.increment(own))
        assert_passing(await deployment.increment("articles"))
        await deployment.check(own)
        for class_name in CLASSES.keys() - needing(system):
            await assert_served(deployment, class_name)
    for class_name in needing(system):
        await eventually(partial(deployment.works, class_name))
        await deployment.check(class_name)


async def refuses(deployment: Deployment, class_name: str) -> bool:
    """Whether writes are refused yet: a server takes a moment to read its settings again."""
    return (await deployment.increment(class_name)).status == 503
