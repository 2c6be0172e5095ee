"""The staleness probe through a real Varnish and a real nginx: its report is correct."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from benchmarks.harness.varnish import Varnish, varnish
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique
from tests.proxies.nginx import Nginx, nginx
from tests.proxies.test_coherence import free_port

PROBE = "/admin/v1/probes/staleness"
UNREACHABLE = "http://127.0.0.1:1"
TTL_S, DELTA_S = 2, 0.5
CLASSES: dict[str, Any] = {
    "articles": {
        "cache": {"visibility": "public", "max_ttl_s": TTL_S},
        "fields": {
            "title": field_on("postgres", required=True),
            "hits": field_on("redis", "integer", default=0, group="hits"),
        },
    }
}


@dataclass
class Deployment:
    """A service that may probe the caches before it."""

    service: Service
    caches: dict[str, Varnish | Nginx]
    database: str
    admin: httpx.AsyncClient

    async def start(self, path: str, **members: Any) -> None:
        """Start a probe through a cache."""
        request = {"database": self.database, "class": "articles", "path": path, "rate": 10}
        answer = await self.admin.post(PROBE, json={**request, **members})
        assert answer.status_code == 202, answer.text

    async def describe(self) -> dict[str, Any]:
        document: dict[str, Any] = (await self.admin.get(PROBE)).json()
        return document

    async def wait_for_report(self) -> dict[str, Any]:
        """Wait for the end of the probe; return its report, which must be complete."""

        async def is_over() -> bool:
            return bool((await self.describe())["state"] != "running")

        await eventually(is_over)
        probe = await self.describe()
        assert (probe["state"], probe["progress"]) == ("done", 1), probe
        report: dict[str, Any] = probe["report"]
        assert report["left_behind"] == []
        return report


@pytest.fixture(scope="module")
async def deployment(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Deployment]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        configs = await enter(scratch_systems(redis_config, postgresql_config, mongodb_config))
        catalogue = await enter(scratch_catalogue(postgresql_config))
        port = str(free_port())
        origin = f"http://127.0.0.1:{port}"
        caches: dict[str, Varnish | Nginx] = {
            "varnish": await enter(varnish(origin)),
            "nginx": await enter(nginx(origin)),
        }
        addresses = json.dumps([cache.url for cache in caches.values()] + [UNREACHABLE])
        settings = {"port": port, "probe_caches": addresses, "sketch": "redis", "relays": "here"}
        service = Service.on(configs, catalogue, redis_config.url, **settings)
        service.ports = (port, "0")
        await enter(service.running())
        await service.favour()
        database = unique("news")
        await service.put_schema(database, CLASSES)
        admin = await enter(httpx.AsyncClient(base_url=service.admin, timeout=60.0))
        yield Deployment(service, caches, database, admin)


@pytest.mark.parametrize("kind", ["varnish", "nginx"])
async def test_without_the_filter_copies_are_stale_up_to_their_ttl(
    deployment: Deployment, kind: str
) -> None:
    # TTLs have whole seconds, and the copy may be served until the end of the last one.
    await deployment.start(deployment.caches[kind].url, count=8, bound_s=TTL_S + 1)
    report = await deployment.wait_for_report()
    assert (report["count"], report["failures"], report["unseen"]) == (8, 0, 0)
    assert report["surely_beyond"] == 0
    assert report["lower_s"]["max"] > DELTA_S, "a cache that keeps nothing proves nothing"


@pytest.mark.parametrize("kind", ["varnish", "nginx"])
async def test_our_client_keeps_its_bound(deployment: Deployment, kind: str) -> None:
    await deployment.start(deployment.caches[kind].url, count=20, delta_s=DELTA_S)
    report = await deployment.wait_for_report()
    assert (report["count"], report["failures"], report["unseen"]) == (20, 0, 0)
    assert (report["bound_s"], report["surely_beyond"]) == (DELTA_S, 0)


@pytest.mark.parametrize(("kind", "members"), [("varnish", {"delta_s": DELTA_S}), ("nginx", {})])
async def test_a_restarted_cache_fails_some_reads_and_serves_none_late(
    deployment: Deployment, kind: str, members: dict[str, Any]
) -> None:
    bound_s = members.get("delta_s", TTL_S + 1)
    await deployment.start(deployment.caches[kind].url, count=15, bound_s=bound_s, **members)

    async def is_running() -> bool:
        return bool((await deployment.describe())["report"]["count"])

    await eventually(is_running)
    await deployment.caches[kind].restart()
    report = await deployment.wait_for_report()
    assert report["count"] + report["failures"] == 15
    assert (report["unseen"], report["surely_beyond"]) == (0, 0)
    assert all("Nothing can be read through" in reason for reason in report["reasons"])


@pytest.mark.parametrize("members", [{}, {"delta_s": DELTA_S}])
async def test_an_unreachable_cache_is_reported_and_leaves_nothing(
    deployment: Deployment, members: dict[str, Any]
) -> None:
    await deployment.start(UNREACHABLE, count=5, **members)
    report = await deployment.wait_for_report()
    assert (report["count"], report["failures"]) == (0, 5)
    assert report["surely_beyond"] is None
    [reason] = report["reasons"]
    assert reason.startswith(f"Nothing can be read through {UNREACHABLE}: ")
