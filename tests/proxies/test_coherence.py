"""The service behind a real Varnish: cached, bounded, purged.

See docs/papers/cache_sketch.md, figure 3.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Any

import httpx
import pytest

from benchmarks.harness.varnish import Varnish, varnish
from mediator.stores.port import SystemConfig
from sketch.client import CoherentClient
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique

DELTA_S = 0.5
UPDATE = {"content-type": "application/vnd.portolan.update+json"}
CLASSES: dict[str, Any] = {
    "articles": {
        "cache": {"visibility": "public", "max_ttl_s": 60},
        "fields": {
            "title": field_on("postgres"),
            "hits": field_on("redis", "integer", default=0, group="hits"),
        },
    }
}


@dataclass
class World:
    """A service, a Varnish before it, and clients of both without caches."""

    service: Service
    cache: Varnish
    database: str
    origin: httpx.AsyncClient
    cached: httpx.AsyncClient

    def client(self) -> CoherentClient:
        return CoherentClient(self.cache.url, self.database, delta_s=DELTA_S, timeout_s=60.0)

    async def hits(self, http: httpx.AsyncClient, id_: str) -> httpx.Response:
        answer = await http.get(f"/v1/{self.database}/articles/{id_}")
        assert answer.status_code == 200, answer.text
        return answer

    async def put(self, id_: str) -> None:
        answer = await self.origin.put(f"/v1/{self.database}/articles/{id_}", json={"title": "One"})
        assert answer.is_success, answer.text

    async def inc(self, id_: str) -> int:
        answer = await self.origin.patch(
            f"/v1/{self.database}/articles/{id_}", content=b'{"hits":{"inc":1}}', headers=UPDATE
        )
        assert answer.is_success, answer.text
        return int(answer.json()["hits"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def world_of(stack: AsyncExitStack, *systems: SystemConfig, purged: bool) -> World:
    configs = await stack.enter_async_context(scratch_systems(*systems))
    redis, postgres, _ = systems
    url = await stack.enter_async_context(scratch_catalogue(postgres))
    # The service has to know the cache's address, and the cache the service's.
    port = free_port()
    cache = await stack.enter_async_context(varnish(f"http://127.0.0.1:{port}"))
    settings = {"port": str(port)}
    if purged:
        target = {"name": "edge", "kind": "varnish", "at": cache.url, "token": cache.token}
        settings |= {"purge": json.dumps([target]), "purge_repeat_s": "1"}
    service = Service.on(configs, url, redis.url, **settings)
    service.ports = (str(port), "0")
    await stack.enter_async_context(service.running())
    await service.favour()
    database = unique("news")
    await service.put_schema(database, CLASSES)
    origin, cached = [
        await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60.0))
        for url in (service.data, cache.url)
    ]
    return World(service, cache, database, origin, cached)


@pytest.fixture(scope="module")
async def world(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        systems = (redis_config, postgresql_config, mongodb_config)
        yield await world_of(stack, *systems, purged=False)


@pytest.fixture(scope="module")
async def purged(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        systems = (redis_config, postgresql_config, mongodb_config)
        yield await world_of(stack, *systems, purged=True)


async def test_the_walk_of_the_figure(world: World) -> None:
    x1, x2 = unique("x"), unique("x")
    await asyncio.gather(world.put(x1), world.put(x2))
    # x1 and x2 are read and cached; x2 is written, so it is in the filter of the next client.
    for id_ in (x1, x2):
        first, second = await world.hits(world.cached, id_), await world.hits(world.cached, id_)
        assert first.headers["x-request-id"] == second.headers["x-request-id"], "cached by Varnish"
    await world.inc(x2)
    assert (await world.hits(world.cached, x2)).json()["hits"] == 0, "no purger runs here"
    async with world.client() as client:
        first_read, second_read = await client.get("articles", x1), await client.get("articles", x2)
        assert first_read.value is not None
        assert second_read.value is not None
        assert (first_read.value["hits"], second_read.value["hits"]) == (0, 1)
        assert client.statistics.revalidations == 1
    # The revalidation has renewed Varnish's copy of x2.
    assert (await world.hits(world.cached, x2)).json()["hits"] == 1
    # Now x1 is written: later readers revalidate it as well.
    await world.inc(x1)
    async with world.client() as client:
        read = await client.get("articles", x1)
        assert read.value is not None
        assert read.value["hits"] == 1


async def test_no_read_through_varnish_is_older_than_the_bound(world: World) -> None:
    ids = [unique("c") for _ in range(4)]
    await asyncio.gather(*map(world.put, ids))
    counts: dict[str, list[tuple[float, int]]] = {id_: [] for id_ in ids}
    stale_reads: list[str] = []

    async def work(client: CoherentClient, rng: Random) -> None:
        for _ in range(150):
            id_ = rng.choice(ids)
            if rng.random() < 0.1:
                count = await world.inc(id_)
                counts[id_].append((monotonic(), count))
                continue
            sent_s = monotonic()
            value = (await client.get("articles", id_)).value
            assert value is not None
            due = [count for at, count in counts[id_] if at < sent_s - DELTA_S]
            if due and max(due) > value["hits"]:
                stale_reads.append(f"{id_}: {value['hits']} instead of {max(due)}")
            counts[id_].append((monotonic(), value["hits"]))

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(world.client()) for _ in range(4)]
        await asyncio.gather(*(work(client, Random(n)) for n, client in enumerate(clients)))
        assert sum(client.statistics.hits for client in clients)
    assert stale_reads == []


async def test_a_written_object_is_purged(purged: World) -> None:
    id_ = unique("p")
    await purged.put(id_)
    assert (await purged.hits(purged.cached, id_)).json()["hits"] == 0
    await purged.inc(id_)

    async def is_purged() -> bool:
        return bool((await purged.hits(purged.cached, id_)).json()["hits"] == 1)

    await eventually(is_purged)
