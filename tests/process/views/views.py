"""A view and its client, and ways to tamper with copies."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import httpx

from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.base.errors import Conflict
from mediator.base.lease import Lease
from mediator.base.observation import ViewReadFinished
from mediator.materialisation.maintenance import Kind
from mediator.model.operations import Get, Outcome
from mediator.routing.freshness import ReadPreference
from mediator.routing.model import ClassRoute
from mediator.service import Mediator
from mediator.stores.port import Mirror, Read, Record, SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, scratch_catalogue, scratch_systems, service

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


@dataclass
class ViewClient:
    """A database with a view, and a client of its data API."""

    service: Service
    database: str
    http: httpx.AsyncClient

    @property
    def database_id(self) -> str:
        return self.service.mediator.data.model.databases[self.database].id

    @property
    def route(self) -> ClassRoute:
        return self.service.mediator.data.model.databases[self.database].classes["articles"]

    async def send(self, method: str, id_: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request about an article; it must succeed."""
        request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.http.request(
            method, f"articles/{id_}", json=body, headers=request_headers
        )
        assert answer.is_success, answer.text
        return answer

    async def inc(self, id_: str) -> httpx.Response:
        return await self.http.patch(
            f"articles/{id_}", content=b'{"hits": {"inc": 1}}', headers=UPDATE
        )

    async def read_copy(self, id_: str) -> Record | None:
        """Read an object's copy."""
        assert self.route.copy is not None
        store = self.service.mediator.systems.get(self.route.copy.system).store
        [record] = await store.read([Read(self.route.copy, id_)])
        return record

    async def mirror(self, call: Callable[[Mirror, Any], Awaitable[Any]]) -> None:
        """Tamper with copies."""
        assert self.route.copy is not None
        store = self.service.mediator.systems.get(self.route.copy.system).store
        assert isinstance(store, Mirror)
        await call(store, self.route.copy)

    async def overwrite(self, record: Record) -> None:
        """Replace an existing copy."""
        existing = await self.read_copy(record.id)
        assert existing is not None
        await self.mirror(
            lambda mirror, fragment: mirror.replace_copies(fragment, [existing], [record])
        )

    async def wait_until_complete(self) -> None:
        """Wait until the copies are complete."""
        await eventually(self._is_complete)

    async def wait_until_answered(self, id_: str) -> None:
        """Wait until the view answers reads of this object."""

        async def is_answered() -> bool:
            read = Get(self.database, "articles", id_)
            outcome = await self.service.mediator.data.read(read, ReadPreference("bounded"))
            return outcome.freshness is not None

        await eventually(is_answered)

    async def wait_until_caught_up(self) -> None:
        """Wait until every write so far is in the view."""
        feed = self.service.mediator.coordination
        assert feed is not None
        tick = await feed.feed.tick()

        async def is_reached() -> bool:
            watermarks = await feed.view_state.watermarks(self.database_id)
            until_ticks = [m for ticks in watermarks.until_tick.values() for m in ticks]
            return bool(until_ticks) and all(
                watermark is not None and watermark > tick for watermark in until_ticks
            )

        await eventually(is_reached)
        await self.service.mediator.views.read_watermarks()

    async def report(self, kind: Kind, *, repair: bool = False) -> dict[str, Any]:
        """Run maintenance of the view; return its findings on the articles."""
        views = self.service.mediator.views

        async def is_started() -> bool:
            # The previous run can still hold its lease, although it is done.
            with suppress(Conflict):
                await views.start_run(self.database, kind, repair=repair)
                return True
            return False

        await eventually(is_started)

        async def is_over() -> bool:
            return bool((await views.describe(self.database))["run"]["state"] != "running")

        await eventually(is_over)
        run = (await views.describe(self.database))["run"]
        assert run["state"] == "done", run
        findings: dict[str, Any] = run["classes"]["articles"]
        return findings

    async def _is_complete(self) -> bool:
        reports = await self.service.mediator.views.describe(self.database)
        return all(report["age_s"] is not None for report in reports["classes"].values())


def last_view_read(view: ViewClient) -> ViewReadFinished:
    """Return the last report of a read that the view could have answered."""
    return next(o for o in reversed(view.service.observed) if isinstance(o, ViewReadFinished))


def client_of(mirrored: Service, database: str) -> httpx.AsyncClient:
    app = DataApi(mirrored.mediator.data, DataOptions(cursor_key=b"secret"), lambda _: None)
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url=f"http://test/v1/{database}/")


async def set_mode(mirrored: Service, database: str, mode: str) -> None:
    control = mirrored.mediator.control
    document = (await control.schema(database)).document
    view = {"system": "postgres", "staleness_s": BOUND_S}
    await control.set_schema(database, {**document, "mode": mode, "materialised_view": view})


async def execute(view: ViewClient, statement: str, *arguments: Any) -> None:
    """Change the view's rows behind its back."""
    copy = view.route.copy
    assert copy is not None
    store = view.service.mediator.systems.get(copy.system).store
    table = store.statements.records(copy).table  # type: ignore[attr-defined]
    connection = await asyncpg.connect(view.service.configs["postgres"].url)
    try:
        name = f'"{table.schema}"."{table.name}"'
        assert not (await connection.execute(statement.format(name), *arguments)).endswith(" 0")
    finally:
        await connection.close()


async def corrupt(view: ViewClient) -> None:
    """Make one wrong copy of each kind."""
    for id_ in ("v-absent", "v-different", "v-ahead", "v-right"):
        await view.send("PUT", id_, {"title": "right", "hits": 1, "text": "right"})
    await view.wait_until_caught_up()
    await execute(view, "DELETE FROM {} WHERE id = $1", "v-absent")
    for id_, ahead in (("v-different", 0), ("v-ahead", 10**9)):
        copy = await view.read_copy(id_)
        assert copy is not None
        versions = {group: version + ahead for group, version in copy.versions.items()}
        wrong = Record(id_, copy.creation_version, versions, {**copy.values, "title": "wrong"})
        await view.overwrite(wrong)
    stray = Record("v-stray", 1, {"main": 1, "hits": 1, "text": 1}, {"title": "stray"})
    await view.mirror(lambda m, fragment: m.absorb(fragment, [stray]))


async def make_stale(view: ViewClient, id_: str) -> None:
    """Write an object twice, and leave its first state in the view."""
    await view.send("PUT", id_, {"title": "t", "hits": 1})
    await view.wait_until_caught_up()
    copy = await view.read_copy(id_)
    assert copy is not None
    await view.send("PUT", id_, {"title": "t", "hits": 2})
    await view.wait_until_caught_up()
    await view.overwrite(copy)


WRONG = {"absent": 1, "different": 1, "ahead": 1, "left over": 1}


async def is_right(view: ViewClient) -> None:
    assert await view.read_copy("v-stray") is None
    for id_ in ("v-absent", "v-different", "v-ahead", "v-right"):
        copy = await view.read_copy(id_)
        assert copy is not None
        assert copy.values == {"title": "right", "hits": 1, "text": "right"}


class History:
    """Acknowledged increments, to compare copies with."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], int] = {}
        self.acknowledged: dict[str, list[tuple[float, int]]] = {}

    def note(self, id_: str, version: int, value: int) -> None:
        self.values[id_, version] = value
        self.acknowledged.setdefault(id_, []).append((time.monotonic(), version))

    def check(self, outcome: Outcome, requested_at: float) -> None:
        """Compare a view's answer with the acknowledged increments."""
        assert outcome.freshness is not None
        version = outcome.versions["hits"]
        assert version is not None
        assert outcome.values is not None
        assert self.values[outcome.id, version] == outcome.values["hits"]
        due = requested_at - outcome.freshness.measured_s
        acknowledged = [v for time_s, v in self.acknowledged[outcome.id] if time_s < due]
        assert version >= max(acknowledged, default=0)


@asynccontextmanager
async def uncoordinated(config: SystemConfig, catalogue: SystemConfig) -> AsyncIterator[Service]:
    """Run a mediator on one system, without coordination."""
    async with (
        scratch_systems(config) as systems,
        scratch_catalogue(catalogue) as url,
        service(systems, url) as instance,
    ):
        yield instance


@asynccontextmanager
async def run_elsewhere(mediator: Mediator, database_id: str) -> AsyncIterator[None]:
    """Hold the lease of runs, as another replica does during its run."""
    assert mediator.coordination is not None
    leases, name = mediator.coordination.leases, f"view-maintenance:{database_id}"
    await eventually(partial(may_run, mediator, database_id))
    assert await leases.acquire(name, "another replica", 120)
    try:
        yield
    finally:
        await leases.release(name, "another replica")


async def has_ended(admin: httpx.AsyncClient, path: str) -> bool:
    return bool((await admin.get(path)).json()["run"]["state"] != "running")


async def may_run(mediator: Mediator, database_id: str) -> bool:
    """Whether no run has its lease: a finished one releases it a moment later."""
    assert mediator.coordination is not None
    lease = Lease(f"view-maintenance:{database_id}", "")
    return not await mediator.coordination.redis.exists(lease.key)


async def eventual_copy(instance: Service, database: str, **values: Any) -> Outcome:
    """Wait until the view answers with these values."""
    outcome: Outcome | None = None

    async def is_answered() -> bool:
        nonlocal outcome
        outcome = await instance.mediator.data.read(
            Get(database, "articles", "a"), ReadPreference("bounded")
        )
        copy_values = outcome.values or {}
        return outcome.freshness is not None and values.items() <= copy_values.items()

    await eventually(is_answered)
    assert outcome is not None
    return outcome


SHIFTED_TIME = """
local function time()
  local now = redis.call('TIME')
  return {{ now[1] + (redis.call('GET', '{}') or 0), now[2] }}
end
"""
