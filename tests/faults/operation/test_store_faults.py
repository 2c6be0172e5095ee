"""Stores that die, fall silent or refuse: what needs them is told so, all else goes on."""

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

from tests.faults.caching.wire import Answer, Connection
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
class House:
    """A service on stores of the test's own, with what it has acknowledged so far."""

    service: Service
    stores: OwnStores
    acknowledged: Counter[str] = field(default_factory=Counter)
    uncertain: Counter[str] = field(default_factory=Counter)

    async def ask(self, method: str, target: str, body: Any = None) -> Answer:
        """Ask the data API over a connection of its own; the answer must come in a bounded time."""
        headers = UPDATE if method == "PATCH" else None
        async with asyncio.timeout(BOUND_S), Connection(self.service.data) as http:
            return await http.request(method, f"/v1/shop/{target}", body, headers)

    async def increment(self, class_name: str) -> Answer:
        body = {key: {"inc": 1} for key in CLASSES[class_name]["fields"]}
        answer = await self.ask("PATCH", f"{class_name}/counter", body)
        (self.acknowledged if answer.status == 200 else self.uncertain)[class_name] += 1
        return answer

    async def works(self, class_name: str) -> bool:
        return (await self.increment(class_name)).status == 200

    async def check(self, class_name: str) -> None:
        """Compare a counter with what was acknowledged, once its parts agree."""
        await eventually(partial(self._agrees, class_name))
        found = (await self.ask("GET", f"{class_name}/counter")).json()["count"]
        least = self.acknowledged[class_name]
        assert least <= found <= least + self.uncertain[class_name], class_name

    async def _agrees(self, class_name: str) -> bool:
        found = (await self.ask("GET", f"{class_name}/counter")).json()
        return bool(found["count"] == found.get("edits", found["count"]))

    async def state(self, system: str) -> str:
        async with Connection(self.service.admin) as admin:
            answer = await admin.request("GET", f"/admin/v1/systems/{system}")
        state: str = answer.json()["state"]
        return state

    async def degraded(self) -> set[str]:
        """Return what /ready says is away; the service must say that it is ready."""
        async with asyncio.timeout(BOUND_S), Connection(self.service.admin) as admin:
            answer = await admin.request("GET", "/ready")
        assert answer.status == 200, answer
        told = answer.json()["degraded"]
        assert answer.headers.get("portolan-degraded", "") == ", ".join(told)
        return set(told)


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
async def house(stores: OwnStores) -> AsyncIterator[House]:
    configs = stores.configs()
    async with Service.on(configs, configs[1].url).running() as service:
        await service.favour()
        placed = await service.put_schema("shop", CLASSES)
        assert {placed[name] for name in CLASS_OF.values()} == set(KINDS)
        built = House(service, stores)
        for class_name in CLASSES:
            created = await built.ask("PUT", f"{class_name}/counter", {"count": 0})
            assert created.status == 201, created
        yield built


@contextlib.contextmanager
def broken(house: House, system: str, fault: str) -> Iterator[None]:
    with getattr(house.stores, fault)(system):
        yield


def needing(system: str) -> list[str]:
    """Name the classes that need a system."""
    own = CLASS_OF[system]
    return [own] if system == "mongo" else [own, "articles"]


async def assert_refused(house: House, class_name: str) -> None:
    """See that writes and reads are refused, for now."""
    asked = [house.increment(class_name) for _ in range(MORE_THAN_THE_BREAKER_BEARS)]
    reads = [house.ask("GET", f"{class_name}/counter") for _ in range(2)]
    for answer in await asyncio.gather(*asked, *reads):
        assert_passing(answer)


def assert_passing(answer: Answer) -> None:
    assert answer.status == 503, answer
    assert answer.problem()["type"] in ("/problems/unavailable", "/problems/outcome-unknown")
    assert int(answer.headers["retry-after"]) >= 1


async def assert_served(house: House, class_name: str) -> None:
    """See that everything can be done with a class."""
    assert (await house.increment(class_name)).status == 200
    await house.check(class_name)
    created = await house.ask("POST", class_name, {"count": 1})
    assert created.status == 201, created
    target = f"{class_name}/{created.json()['id']}"
    assert (await house.ask("DELETE", target)).status == 204


async def assert_part_served(house: House) -> None:
    """See that the part of a split object whose store is there can be written by itself."""
    body = {"count": {"inc": 0}}
    assert (await house.ask("PATCH", "articles/counter", body)).status == 200
    assert (await house.ask("GET", "articles/counter?fields=count")).status == 200


async def is_(expected: str, house: House, system: str) -> bool:
    return await house.state(system) == expected


async def recovered(house: House) -> bool:
    return not await house.degraded()


@pytest.mark.parametrize("fault", ["dead", "silent"])
@pytest.mark.parametrize("system", list(KINDS))
async def test_a_store_that_does_not_answer(house: House, system: str, fault: str) -> None:
    for class_name in CLASSES:
        await eventually(partial(house.works, class_name))
    with broken(house, system, fault):
        for class_name in needing(system):
            await assert_refused(house, class_name)
        await eventually(partial(is_, "failing", house, system))
        for class_name in CLASSES.keys() - needing(system):
            await assert_served(house, class_name)
        if system == "postgres":
            await assert_part_served(house)
        assert system in await house.degraded()
    for class_name in needing(system):
        await eventually(partial(house.works, class_name))
        await house.check(class_name)
        await assert_served(house, class_name)
    await eventually(partial(recovered, house))
    assert await house.state(system) == "serving"


async def test_a_batch_does_what_can_be_done(house: House) -> None:
    updates = [
        {"op": "update", "class": name, "id": "counter", "body": {"count": {"inc": 1}}}
        for name in CLASS_OF.values()
    ]
    with broken(house, "mongo", "dead"):
        answer = await house.ask("POST", "batch", {"operations": updates})
        assert [result["status"] for result in answer.json()] == [200, 200, 503]
    for class_name in ("sessions", "orders"):
        house.acknowledged[class_name] += 1
        await house.check(class_name)
    house.uncertain["notes"] += 1
    await eventually(partial(house.works, "notes"))
    await house.check("notes")


@contextlib.asynccontextmanager
async def redis_refuses_writes(house: House) -> AsyncIterator[None]:
    """Let Redis ask for a replica that it has not: it then refuses to write (NOREPLICAS)."""
    with Redis.from_url(house.stores.configs()[0].url) as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            yield
        finally:
            client.config_set("min-replicas-to-write", 0)


@contextlib.asynccontextmanager
async def redis_is_full(house: House) -> AsyncIterator[None]:
    with Redis.from_url(house.stores.configs()[0].url) as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextlib.asynccontextmanager
async def postgres_is_read_only(house: House) -> AsyncIterator[None]:
    """Let PostgreSQL serve reads only, as a standby or a full disk makes it."""
    writable = {"default_transaction_read_only": "off"}
    connection = await asyncpg.connect(house.stores.configs()[1].url, server_settings=writable)
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
async def test_a_store_that_refuses_writes(house: House, system: str, refusing: Any) -> None:
    own = CLASS_OF[system]
    await eventually(partial(house.works, own))
    async with refusing(house):
        await eventually(partial(refuses, house, own))
        for _ in range(MORE_THAN_THE_BREAKER_BEARS):
            assert_passing(await house.increment(own))
        assert_passing(await house.increment("articles"))
        await house.check(own)
        for class_name in CLASSES.keys() - needing(system):
            await assert_served(house, class_name)
    for class_name in needing(system):
        await eventually(partial(house.works, class_name))
        await house.check(class_name)


async def refuses(house: House, class_name: str) -> bool:
    """Whether writes are refused yet: a server takes a moment to read its settings again."""
    return (await house.increment(class_name)).status == 503
