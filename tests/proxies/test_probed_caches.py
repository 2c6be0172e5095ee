"""The staleness probe through a real Varnish and a real nginx: what it says of them is so."""

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
NOBODY = "http://127.0.0.1:1"
LIFE_S, DELTA_S = 2, 0.5
CLASSES: dict[str, Any] = {
    "articles": {
        "cache": {"visibility": "public", "max_ttl_s": LIFE_S},
        "fields": {
            "title": field_on("postgres", required=True),
            "hits": field_on("redis", "integer", default=0, group="hits"),
        },
    }
}


@dataclass
class House:
    """A service that may probe the caches before it."""

    service: Service
    caches: dict[str, Varnish | Nginx]
    database: str
    admin: httpx.AsyncClient

    async def begin(self, path: str, **members: Any) -> None:
        """Begin a probe through a cache."""
        request = {"database": self.database, "class": "articles", "path": path, "rate": 10}
        answer = await self.admin.post(PROBE, json={**request, **members})
        assert answer.status_code == 202, answer.text

    async def described(self) -> dict[str, Any]:
        told: dict[str, Any] = (await self.admin.get(PROBE)).json()
        return told

    async def ended(self) -> dict[str, Any]:
        """Wait for the end of the probe; return its report, after seeing that it is whole."""

        async def over() -> bool:
            return bool((await self.described())["state"] != "running")

        await eventually(over)
        told = await self.described()
        assert (told["state"], told["progress"]) == ("done", 1), told
        report: dict[str, Any] = told["report"]
        assert report["left_behind"] == []
        return report


@pytest.fixture(scope="module")
async def house(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[House]:
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
        probed = json.dumps([cache.url for cache in caches.values()] + [NOBODY])
        settings = {"port": port, "probe_caches": probed, "sketch": "redis"}
        service = Service.on(configs, catalogue, redis_config.url, **settings)
        service.ports = (port, "0")
        await enter(service.running())
        await service.favour()
        database = unique("news")
        await service.put_schema(database, CLASSES)
        admin = await enter(httpx.AsyncClient(base_url=service.admin, timeout=30.0))
        yield House(service, caches, database, admin)


@pytest.mark.parametrize("kind", ["varnish", "nginx"])
async def test_who_knows_nothing_of_the_filter_sees_copies_to_their_end(
    house: House, kind: str
) -> None:
    # A life is told in whole seconds, and what is left of the last one may be served.
    await house.begin(house.caches[kind].url, count=8, bound_s=LIFE_S + 1)
    report = await house.ended()
    assert (report["count"], report["failures"], report["unseen"]) == (8, 0, 0)
    assert report["surely_beyond"] == 0
    assert report["lower_s"]["max"] > DELTA_S, "a cache that keeps nothing proves nothing"


@pytest.mark.parametrize("kind", ["varnish", "nginx"])
async def test_our_client_keeps_its_bound(house: House, kind: str) -> None:
    await house.begin(house.caches[kind].url, count=20, delta_s=DELTA_S)
    report = await house.ended()
    assert (report["count"], report["failures"], report["unseen"]) == (20, 0, 0)
    assert (report["bound_s"], report["surely_beyond"]) == (DELTA_S, 0)


@pytest.mark.parametrize(("kind", "members"), [("varnish", {"delta_s": DELTA_S}), ("nginx", {})])
async def test_a_cache_that_is_restarted_fails_some_and_delays_none(
    house: House, kind: str, members: dict[str, Any]
) -> None:
    bound_s = members.get("delta_s", LIFE_S + 1)
    await house.begin(house.caches[kind].url, count=15, bound_s=bound_s, **members)

    async def begun() -> bool:
        return bool((await house.described())["report"]["count"])

    await eventually(begun)
    await house.caches[kind].restart()
    report = await house.ended()
    assert report["count"] + report["failures"] == 15
    assert (report["unseen"], report["surely_beyond"]) == (0, 0)
    assert all("Nothing can be read through" in reason for reason in report["reasons"])


@pytest.mark.parametrize("members", [{}, {"delta_s": DELTA_S}])
async def test_a_dead_cache_is_told_and_leaves_nothing(
    house: House, members: dict[str, Any]
) -> None:
    await house.begin(NOBODY, count=5, **members)
    report = await house.ended()
    assert (report["count"], report["failures"]) == (0, 5)
    assert report["surely_beyond"] is None
    [reason] = report["reasons"]
    assert reason.startswith(f"Nothing can be read through {NOBODY}: ")
