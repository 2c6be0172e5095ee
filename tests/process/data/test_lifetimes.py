"""TTLs of answers in a real service: replicas estimate them and share their observations."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
from prometheus_client import generate_latest

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from app.coherence.caches import CacheEvents, Caches
from app.coherence.estimator_updates import make_estimator
from app.settings.main import CacheSettings
from app.telemetry.metrics import Metrics
from mediator.coordination.metrics_exchange import MetricsExchange
from mediator.stores.port import SystemConfig
from sketch.protocol.port import Partition
from sketch.ttl import Static, TtlEstimator
from tests.process.caching.cached_paper import INC, NOWHERE, UPDATE, Paper
from tests.process.service import service, unique

S_MAXAGE = re.compile(r"s-maxage=(\d+)")


@dataclass
class Replica:
    """A replica of the service on the same systems and the same sketch."""

    caches: Caches
    metrics: Metrics
    http: httpx.AsyncClient

    async def write(self, id_: str) -> None:
        """Write through this replica, so that no other guard observes the write."""
        answer = await self.http.patch(f"articles/{id_}", content=INC, headers=UPDATE)
        assert answer.is_success, answer.text

    async def ttl_s(self, id_: str) -> int:
        """Read with a condition, as a client that has a copy, and return the TTL of the answer."""
        stale = {"if-none-match": '"j1.main:1"'}
        answer = await self.http.get(f"articles/{id_}", headers=stale)
        match = S_MAXAGE.search(answer.headers["cache-control"])
        return int(match[1]) if match else 0


@asynccontextmanager
async def replica(
    paper: Paper, kind: str | TtlEstimator, exchange: MetricsExchange | None = None
) -> AsyncIterator[Replica]:
    members = {"cache_estimator": kind} if isinstance(kind, str) else {}
    settings, metrics = CacheSettings.model_validate(members), Metrics()
    estimator = make_estimator(settings) if isinstance(kind, str) else kind
    events = CacheEvents(granted=metrics.observe)
    caches = Caches(settings, paper.caches.sketch, estimator, events, exchange)
    metrics.caches.regrets = lambda: estimator.regrets
    configs, catalogue = paper.running.configs, paper.running.catalogue_url
    async with service(list(configs.values()), catalogue, guard=caches.guard) as running:
        mediator = running.mediator
        caches.start(
            mediator.orphan_resolver, lambda: mediator.data.model, mediator.control.databases
        )
        await caches.updates.update_terms()
        api = DataApi(
            mediator.data, DataOptions(b"k" * 32), lambda _: None, DataServices(caches=caches)
        )
        base = f"http://test/v1/{paper.database}/"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=base) as http:
            yield Replica(caches, metrics, http)
        await caches.stop()
    await caches.updates.close()


@pytest.fixture
async def untouched(paper: Paper) -> str:
    """An article that was written before any replica of the test started."""
    id_ = unique("a")
    await paper.put(id_)
    await paper.release_leases()
    return id_


@pytest.fixture
async def busy(paper: Paper) -> str:
    id_ = unique("a")
    await paper.put(id_)
    await paper.release_leases()
    return id_


async def write_often(at: Replica, id_: str) -> None:
    for _ in range(20):
        await at.ttl_s(id_)
        await at.write(id_)
        await at.write(id_)


class RecordingStatic(Static):
    """Records the keys of writes, and which of them were created."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: set[str] = set()
        self.created: set[str] = set()

    def wrote(
        self, partition: Partition, keys: Sequence[str], now_s: float, created: Collection[str] = ()
    ) -> None:
        self.keys |= {*keys}
        self.created |= {*created}


async def test_estimators_are_notified_of_created_objects(paper: Paper) -> None:
    estimator, path = RecordingStatic(), f"articles/{unique('a')}"
    async with replica(paper, estimator) as server:
        assert (await server.http.put(path, json={"title": "t"})).is_success
        assert estimator.keys == estimator.created != set()
        estimator.created.clear()
        assert (await server.http.put(path, json={"title": "u"})).is_success
        assert not estimator.created


async def test_frequent_writes_shorten_the_ttl(paper: Paper, untouched: str, busy: str) -> None:
    async with replica(paper, "cate") as server:
        await write_often(server, busy)
        assert await server.ttl_s(busy) < 10
        assert await server.ttl_s(untouched) == 60


async def test_the_learner_does_not_cache_objects_that_are_mostly_written(
    paper: Paper, untouched: str, busy: str
) -> None:
    async with replica(paper, "learner") as server:
        await write_often(server, busy)
        assert await server.ttl_s(busy) == 0


async def test_static_ttls_are_always_the_maximum(paper: Paper, untouched: str, busy: str) -> None:
    async with replica(paper, "static") as server:
        await write_often(server, busy)
        assert await server.ttl_s(busy) == await server.ttl_s(untouched) == 60


@pytest.mark.parametrize("restarted", [False, True])
async def test_another_replica_starts_from_shared_observations(
    paper: Paper, untouched: str, busy: str, redis_config: SystemConfig, restarted: bool
) -> None:
    """It has observed no write itself; it may run at the same time, or later."""
    key = unique("lifetimes")
    exchange = MetricsExchange(redis_config.url, key)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(replica(paper, "cate", exchange))
        await write_often(server, busy)
        ttl_s = await server.ttl_s(busy)
        await server.caches.updates.exchange()
        if restarted:
            await stack.aclose()
        async with replica(paper, "cate", MetricsExchange(redis_config.url, key)) as other:
            await other.caches.updates.merge()
            assert await other.ttl_s(busy) <= ttl_s + 10
            assert await other.ttl_s(untouched) == 60
        async with replica(paper, "cate") as isolated:
            assert await isolated.ttl_s(busy) == 60


async def test_nothing_depends_on_the_exchange(paper: Paper, busy: str) -> None:
    async with replica(paper, "cate", MetricsExchange(NOWHERE)) as server:
        await write_often(server, busy)
        await server.caches.updates.exchange()
        assert await server.ttl_s(busy) < 10


async def test_metrics_show_ttls_and_the_fates_of_copies(paper: Paper, busy: str) -> None:
    async with replica(paper, "cate") as server:
        await server.ttl_s(busy)
        await server.write(busy)
        text = generate_latest(server.metrics.registry).decode()
        labels = f'class="articles",database="{paper.database}"'
        assert f"portolan_cache_ttl_seconds_count{{{labels}}} 1.0" in text
        invalidated = f'portolan_cache_copies_total{{{labels},fate="invalidations"}}'
        assert f"{invalidated} 1.0" in text
        assert f"portolan_cache_ttl_error{{{labels}}}" in text
        second = generate_latest(server.metrics.registry).decode()
        assert f"{invalidated} 1.0" in second, "nothing is counted twice"
