"""Staleness probes over HTTP: live paths, refused requests, and objects left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.api.options import DataOptions
from app.api.router import DataApi
from app.coherence.probe_readers import cache_readers
from app.settings.main import CacheSettings
from mediator.base.clock import SystemClock
from mediator.data_plane.port import DataPlane
from mediator.schema.parse import parse_schema
from mediator.staleness_probes.service import StalenessProbes
from tests.faults.conditions import eventually
from tests.process.caching.serving import served
from tests.process.data.memory_plane import MemoryPlane, routing_model
from tests.process.service import Service, field_on

ADDRESS = "/admin/v1/probes/staleness"
NOTES = {"database": "news", "class": "notes"}
FIELDS = {
    "text": {"type": "string", "required": True},
    "seen": {"type": "integer", "group": "hits"},
}


class StaleCache:
    """A cache that repeats each response `more` times, whatever was written meanwhile."""

    def __init__(self, origin: Callable[..., Any], more: int) -> None:
        self._origin, self._more = origin, more
        self._responses: dict[str, tuple[list[dict[str, Any]], int]] = {}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        messages, remaining = self._responses.get(scope["path"], ([], 0))
        if not remaining:
            messages, remaining = [], self._more + 1

            async def keep(message: dict[str, Any]) -> None:
                messages.append(message)

            await self._origin(scope, receive, keep)
        self._responses[scope["path"]] = messages, remaining - 1
        for message in messages:
            await send(message)


def plane() -> MemoryPlane:
    classes = {"notes": {"fields": FIELDS}, "exact": {"fields": FIELDS, "require_if_match": True}}
    return MemoryPlane(routing_model(1, parse_schema("news", {"classes": classes})))


@asynccontextmanager
async def admin_of(data: DataPlane, *caches: str) -> AsyncIterator[httpx.AsyncClient]:
    probes = StalenessProbes(data, SystemClock(), cache_readers(caches))
    control: Any = SimpleNamespace(readiness=None)
    app = create_admin_app(control, CollectorRegistry(), AdminContext(probes=probes))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        yield client
    await probes.stop()


async def run_probe(admin: httpx.AsyncClient, **request: Any) -> dict[str, Any]:
    plan = {"count": 5, "rate": 100, "timeout_s": 60}
    started = await admin.post(ADDRESS, json={**NOTES, **plan, **request})
    assert started.status_code == 202, started.text
    assert started.json()["state"] == "running"
    last: dict[str, Any] = {}

    async def has_ended() -> bool:
        last.update((await admin.get(ADDRESS)).json())
        return bool(last["state"] != "running")

    await eventually(has_ended)
    assert (last["state"], last["progress"]) == ("done", 1), last
    return last


def problem(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["type"] == f"/problems/{slug}"
    return document


@pytest.mark.parametrize("class_name", ["notes", "exact"])
async def test_systems_without_staleness_are_reported_fresh(class_name: str) -> None:
    data = plane()
    async with admin_of(data) as admin:
        report = (await run_probe(admin, **{"class": class_name}))["report"]
    assert (report["count"], report["failures"], report["unseen"]) == (5, 0, 0)
    assert (report["bound_s"], report["surely_beyond"]) == (0.0, 0)
    assert report["lower_s"]["max"] == 0
    assert report["left_behind"] == []
    assert not any(data.objects.values())


async def test_a_probe_detects_a_stale_cache() -> None:
    data = plane()
    api = DataApi(data, DataOptions(b"k" * 32), lambda _: None)
    async with served(StaleCache(api, 3)) as cache, admin_of(data, f"{cache}/") as admin:
        result = await run_probe(admin, path=cache, rate=100, bound_s=0)
    report = result["report"]
    assert (report["count"], report["failures"], report["path"]) == (5, 0, cache)
    assert report["surely_beyond"] > 0
    assert report["lower_s"]["max"] > 0
    assert not any(data.objects.values())


async def test_an_unreachable_cache_is_reported_as_a_failure() -> None:
    data, nowhere = plane(), "http://127.0.0.1:1"
    async with admin_of(data, nowhere) as admin:
        report = (await run_probe(admin, path=nowhere))["report"]
    assert (report["count"], report["failures"]) == (0, 5)
    assert report["reasons"] == [f"Nothing can be read through {nowhere}: ConnectError."]
    assert not any(data.objects.values())


REFUSED: dict[str, Any] = {
    "/count": {"count": 10_001},
    "/rate": {"rate": 0},
    "/timeout_s": {"timeout_s": 61},
    "/delta_s": {"delta_s": -1},
    "/bound_s": {"bound_s": -1},
    "/database": {"database": 7},
    "/class": {"class": None},
    "/more": {"more": 1},
}


@pytest.mark.parametrize(("pointer", "members"), REFUSED.items())
async def test_every_mistake_is_located(pointer: str, members: dict[str, Any]) -> None:
    async with admin_of(plane()) as admin:
        response = await admin.post(ADDRESS, json={**NOTES, **members})
        assert [error["pointer"] for error in problem(response, 400, "invalid")["errors"]] == [
            pointer
        ]
        problem(await admin.get(ADDRESS), 404, "not-found")


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"count": 1e999}', b"[" * 60_000])
async def test_hostile_bodies_get_a_problem(body: bytes) -> None:
    async with admin_of(plane()) as admin:
        response = await admin.post(ADDRESS, content=body)
        assert response.status_code == 400, response.text
        problem(response, 400, response.json()["type"].removeprefix("/problems/"))
        large = await admin.post(ADDRESS, content=b" " * 70_000)
        problem(large, 413, "body-too-large")


async def test_the_duration_of_a_probe_is_bounded() -> None:
    async with admin_of(plane()) as admin:
        response = await admin.post(ADDRESS, json={**NOTES, "count": 1000, "rate": 0.1})
        assert "600 seconds" in problem(response, 400, "invalid")["errors"][0]["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "http://127.0.0.1:1/elsewhere",
        "http://cache.example.evil",
        "http://cache.example@evil",
        "http://cache.example/../x",
        "http://cache.example/v1/news/notes/x?",
        "HTTP://CACHE.EXAMPLE",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "view",
        "system",
    ],
)
async def test_only_configured_caches_are_probed(path: str) -> None:
    async with admin_of(plane(), "http://cache.example") as admin:
        response = await admin.post(ADDRESS, json={**NOTES, "path": path})
        assert problem(response, 400, "invalid")["errors"][0]["pointer"] == "/path"


async def test_an_unknown_class_or_database_cannot_be_probed() -> None:
    async with admin_of(plane()) as admin:
        for members in ({"class": "nothing"}, {"database": "nothing"}):
            problem(await admin.post(ADDRESS, json={**NOTES, **members}), 404, "not-found")
        problem(await admin.delete(ADDRESS), 404, "not-found")


async def test_one_probe_at_a_time_and_it_can_be_stopped() -> None:
    data = plane()
    async with admin_of(data) as admin:
        started = await admin.post(ADDRESS, json={**NOTES, "count": 5, "rate": 0.01})
        assert started.status_code == 202
        problem(await admin.post(ADDRESS, json=NOTES), 409, "conflict")

        async def has_objects() -> bool:
            return any(data.objects.values())

        await eventually(has_objects)
        stopped = await admin.delete(ADDRESS)
        assert (stopped.status_code, stopped.json()["state"]) == (200, "stopped")
        assert stopped.json()["progress"] < 1
        assert not any(data.objects.values())
        assert (await run_probe(admin))["report"]["count"] == 5


async def test_a_probe_that_is_stopped_before_it_begins_is_stopped() -> None:
    async with admin_of(plane()) as admin:
        await asyncio.gather(admin.post(ADDRESS, json=NOTES), admin.delete(ADDRESS))
        assert (await admin.delete(ADDRESS)).json()["state"] == "stopped"


async def test_without_probes_there_is_a_conflict() -> None:
    control: Any = SimpleNamespace(readiness=None)
    transport = httpx.ASGITransport(create_admin_app(control, CollectorRegistry()))
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        problem(await client.post(ADDRESS, json=NOTES), 409, "conflict")


@pytest.mark.parametrize(
    "url", ["cache.example", "ftp://x", "http://u:p@x", "http://x?y", "http://"]
)
def test_caches_are_plain_urls(url: str) -> None:
    assert CacheSettings(probe_caches=["https://cache.example/news"]).probe_caches
    with pytest.raises(ValueError, match="probe_caches"):
        CacheSettings(probe_caches=[url])


async def test_real_systems_are_probed(mediator: Service) -> None:
    fields = {name: field_on(name) for name in ("redis", "postgres", "mongo")}
    database = await mediator.put_schema({"notes": {"fields": fields}})
    async with admin_of(mediator.mediator.data) as admin:
        report = (await run_probe(admin, database=database))["report"]
    assert (report["count"], report["failures"], report["unseen"]) == (5, 0, 0)
    assert report["lower_s"]["max"] == 0
    for system in mediator.systems_of(database, "notes"):
        store = mediator.mediator.systems.get(system).store
        route = mediator.mediator.data.model.databases[database].classes["notes"]
        [fragment] = [candidate for candidate in route.fragments if candidate.system == system]
        assert await store.count(fragment) == 0
