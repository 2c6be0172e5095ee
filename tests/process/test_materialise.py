"""The primary of a microbatched database: copies of whole objects, within the bound."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from app.api.asgi import DataApi
from app.api.options import DataOptions
from mediator.errors import SchemaInvalid
from mediator.operations.model import Get
from mediator.placement.routing import ClassRoute
from mediator.stores.port import Mirror, Read, Record, SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import (
    Service,
    field_on,
    scratch_catalogue,
    scratch_systems,
    service,
    unique,
)

BOUND_S = 30.0
UPDATE = {"content-type": "application/vnd.portolan.update+json"}


def fields(**more: Any) -> dict[str, Any]:
    """Fields on three systems; the anchor is on PostgreSQL."""
    return {
        "title": field_on("postgres"),
        "hits": field_on("redis", "integer", default=0, group="hits"),
        "text": field_on("mongo", group="text"),
        **more,
    }


@pytest.fixture(scope="module")
async def mirrored(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Service]:
    """A mediator that keeps primaries up."""
    configs = (redis_config, postgresql_config, mongodb_config)
    async with scratch_systems(*configs) as own, scratch_catalogue(postgresql_config) as url:
        own = [replace(config, deadline_s=10.0) for config in own]
        async with service(own, url, coordination_url=redis_config.url) as started:
            await started.favour()
            yield started


@dataclass
class Primary:
    """A database with a primary, and a client of its data API."""

    service: Service
    database: str
    http: httpx.AsyncClient

    @property
    def route(self) -> ClassRoute:
        return self.service.mediator.data.model.databases[self.database].classes["articles"]

    async def send(self, method: str, id_: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request about an article; it must be answered well."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.http.request(method, f"articles/{id_}", json=body, headers=given)
        assert answer.is_success, answer.text
        return answer

    async def inc(self, id_: str) -> httpx.Response:
        return await self.http.patch(
            f"articles/{id_}", content=b'{"hits": {"inc": 1}}', headers=UPDATE
        )

    async def held(self, id_: str) -> Record | None:
        """Read an object's copy."""
        assert self.route.copy is not None
        store = self.service.mediator._systems.get(self.route.copy.system).store
        [record] = await store.read([Read(self.route.copy, id_)])
        return record

    async def mirror(self, call: Callable[[Mirror, Any], Awaitable[Any]]) -> None:
        """Meddle with copies."""
        assert self.route.copy is not None
        store = self.service.mediator._systems.get(self.route.copy.system).store
        assert isinstance(store, Mirror)
        await call(store, self.route.copy)

    async def complete(self) -> None:
        """Wait until the copies are complete."""
        await eventually(self._is_complete)

    async def caught_up(self) -> None:
        """Wait until everything written so far is in the primary."""
        feed = self.service.mediator._coordination
        assert feed is not None
        now_us = await feed.feed.now_us()

        async def reached() -> bool:
            marks = await feed.primary_state.marks(self.database)
            known = [m for marks_ in marks.until_us.values() for m in marks_]
            return bool(known) and all(mark is not None and mark >= now_us for mark in known)

        await eventually(reached)
        await self.service.mediator.primaries._works.primaries.learn()  # type: ignore[union-attr]

    async def _is_complete(self) -> bool:
        told = await self.service.mediator.primaries.describe(self.database)
        return all(each["age_s"] is not None for each in told["classes"].values())


@pytest.fixture
async def primary(mirrored: Service) -> AsyncIterator[Primary]:
    """An empty database with a primary that is complete."""
    database = await mirrored.put_schema(
        {"articles": {"fields": fields()}},
        mode="microbatched",
        primary={"system": "postgres", "staleness_s": BOUND_S},
    )
    async with _client(mirrored, database) as client:
        primary = Primary(mirrored, database, client)
        await primary.complete()
        yield primary
    await mirrored.mediator.control.delete_schema(database)


def _client(mirrored: Service, database: str) -> httpx.AsyncClient:
    app = DataApi(mirrored.mediator.data, DataOptions(cursor_key=b"secret"), lambda _: None)
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url=f"http://test/v1/{database}/")


async def test_whole_objects_are_read_from_the_primary(primary: Primary) -> None:
    body = {"title": "Goal", "hits": 3, "text": "long"}
    await primary.send("PUT", "a", body)
    await primary.caught_up()
    answer = await primary.send("GET", "a")
    assert answer.json() == {"id": "a", **body}
    bound, measured = answer.headers["portolan-staleness"].split(", ")
    assert bound == f"bound={BOUND_S:g}"
    assert 0 <= float(measured.removeprefix("measured=")) <= BOUND_S
    assert answer.headers["cache-control"] == "no-store"
