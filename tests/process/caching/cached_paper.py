"""A database of cacheable articles, on real servers, with its own sketch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from redis.asyncio import Redis

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from app.coherence.caches import Caches
from app.settings.main import CacheSettings
from mediator.model.guard import WriteToken
from mediator.stores.port import SystemConfig
from sketch.filter.shape import FilterShape
from sketch.protocol.port import Partition, SketchLimits
from sketch.protocol.wire import FilterDocument, decode
from sketch.redis.server import RedisSketch
from sketch.ttl import Static
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, service, unique

__all__ = ["NOWHERE", "Paper", "cacheable", "note", "paper_on", "wait_for_listeners"]

UPDATE = {"content-type": "application/vnd.portolan.update+json"}
INC = b'{"hits": {"inc": 1}}'
NOWHERE = "redis://127.0.0.1:1/0"
MARGIN_S = 60.0
"""So long that no answer is too late to be cached on a machine that pauses for seconds."""


@dataclass
class Paper:
    """A database of cacheable articles, and a client without any cache."""

    running: Service
    caches: Caches
    database: str
    http: httpx.AsyncClient
    api: DataApi
    namespace: str
    sketch_url: str

    @property
    def partition(self) -> Partition:
        return Partition(self.database, "articles")

    async def put(self, id_: str, **values: Any) -> httpx.Response:
        answer = await self.http.put(f"articles/{id_}", json={"title": "One", **values})
        assert answer.is_success, answer.text
        return answer

    async def get(self, id_: str, query: str = "", **headers: str) -> httpx.Response:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.get(f"articles/{id_}{query}", headers=fields)

    async def inc(self, id_: str) -> httpx.Response:
        return await self.http.patch(f"articles/{id_}", content=INC, headers=UPDATE)

    async def release_leases(self) -> None:
        """Release the cached write leases of this replica, as it does when they are idle."""
        await self.caches.leases.release_all()

    async def end_lease(self, token: WriteToken) -> None:
        """Expire the lease of a pending write."""
        leases = f"{{{self.namespace}:{self.database}/articles}}:leases"
        async with Redis.from_url(self.sketch_url) as redis:
            assert await redis.zadd(leases, {token.text: 0}, xx=True, ch=True) == 1

    async def filter(self) -> FilterDocument:
        answer = await self.http.get("sketch")
        assert answer.headers["content-type"] == "application/vnd.portolan.sketch"
        assert answer.headers["cache-control"] == "no-store"
        return decode(answer.content)


@asynccontextmanager
async def paper_on(
    configs: Sequence[SystemConfig],
    catalogue_url: str,
    url: str,
    settings: CacheSettings,
    peer: Paper | None = None,
    keys: int = 1_000_000,
) -> AsyncIterator[Paper]:
    """Open a new database, or another replica of the service of `peer`."""
    settings = settings.model_copy(update={"cache_margin_s": MARGIN_S})
    limits = SketchLimits(
        max_ttl_s=settings.cache_max_ttl_s,
        margin_s=settings.cache_margin_s,
        lease_s=settings.write_lease_s,
        queries=settings.cache_queries,
        keys=keys,
    )
    namespace = peer.namespace if peer else unique("sketch")
    sketch = RedisSketch(url, limits, FilterShape(), namespace)
    caches = Caches(settings, sketch, Static())
    async with service(configs, catalogue_url, guard=caches.guard) as running:
        if peer is None:
            await running.favour()
        caches.start(
            running.mediator.orphan_resolver,
            lambda: running.mediator.data.model,
            running.mediator.control.databases,
        )
        fields = {
            "title": field_on("postgres"),
            "hits": field_on("redis", "integer", default=0, group="hits"),
        }
        classes = {
            "articles": {"cache": {"visibility": "public", "max_ttl_s": 60}, "fields": fields},
            "notes": {"cache": {"visibility": "private"}, "fields": {"text": {"type": "string"}}},
            "secrets": {"fields": {"text": {"type": "string"}}},
            "mortals": {"ttl_s": 60, "cache": {"visibility": "public"}, "fields": fields},
        }
        database = peer.database if peer else unique("db")
        if url != NOWHERE and peer is None:
            for name in classes:  # before any request for orphans of existing classes
                await sketch.create(Partition(database, name))
        if peer is None:
            await running.mediator.control.set_schema(database, {"classes": classes})
        mediator, options = running.mediator, DataOptions(b"k" * 32)
        api = DataApi(
            mediator.data,
            options,
            running.observed.append,
            DataServices(caches=caches, transact=mediator.transactions.run),
        )
        base = f"http://test/v1/{database}/"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=base) as http:
            yield Paper(running, caches, database, http, api, namespace, url)
        await caches.stop()
    await caches.close()


def cacheable(answer: httpx.Response) -> bool:
    assert answer.is_success, answer.text
    return "portolan-expires" in answer.headers


async def note(paper: Paper, text: str, id_: str = "") -> str:
    id_ = id_ or unique("n")
    answer = await paper.http.put(f"notes/{id_}", json={"text": text})
    assert answer.is_success, answer.text
    return id_


async def wait_for_listeners(paper: Paper, replicas: int) -> None:
    """Wait until this many replicas receive notifications of contention."""
    channel = f"{{{paper.namespace}:nobodys/class}}:pending"

    async def all_receive() -> bool:
        return bool(await client.publish(channel, "nobodys/object#group") == replicas)

    async with Redis.from_url(paper.sketch_url) as client:
        await eventually(all_receive)
