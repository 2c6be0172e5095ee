"""A new database finds no residue of a dropped database with the same name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.base.errors import NotFound, Unavailable
from mediator.model.operations import Get
from mediator.stores.port import StoreRefused, SystemConfig, Write, WriteKind
from tests.faults.conditions import eventually
from tests.process.operation.asgi_driver import Answer, send_raw
from tests.process.service import (
    Service,
    field_on,
    scratch_catalogue,
    scratch_systems,
    service,
    unique,
)

SYSTEMS = ("redis", "postgres", "mongo")
CLASSES: dict[str, Any] = {
    f"on{system}": {"fields": {"title": field_on(system)}} for system in SYSTEMS
}
JOB = {"kind": "example.count", "spec": {}}


@dataclass
class Harness:
    """A service with a feed, its data API, and a database that is dropped and created again."""

    service: Service
    api: DataApi
    database: str

    @property
    def id(self) -> str:
        return self.service.mediator.data.model.databases[self.database].id

    async def get(self, path: str, query: str = "", **headers: str) -> Answer:
        raw_headers = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
        target = f"/v1/{self.database}/{path}".encode()
        return await send_raw(self.api, "GET", target, query=query.encode(), headers=raw_headers)

    async def set_schema(self) -> None:
        await self.service.mediator.control.set_schema(self.database, {"classes": CLASSES})

    async def drop(self) -> None:
        await self.service.mediator.control.delete_schema(self.database)

    async def create(self, name: str, id_: str) -> None:
        await self.service.create(self.database, name, id_, title="secret")

    async def relayed_changes(self) -> list[tuple[str, str]]:
        """Return the class and the object of every change in the feed."""
        answer = await self.get("changes", "after=beginning&limit=1000")
        assert answer.status == 200, answer
        return [(change["class"], change["object"]) for change in answer.json()["changes"]]

    async def until_relayed(self, id_: str) -> None:
        """Wait until the feed has a change of object `id_` of each class."""

        async def is_relayed() -> bool:
            return {(name, id_) for name in CLASSES} <= {*await self.relayed_changes()}

        await eventually(is_relayed)

    async def residue(self, id_: str) -> list[Write]:
        """Return a write to each class, as a lagging replica would send it."""
        classes = self.service.mediator.data.model.databases[self.database].classes
        return [
            Write(route.anchor, id_, WriteKind.CREATE, unique("op"), ("main",), {"title": "late"})
            for route in classes.values()
        ]

    async def write(self, writes: list[Write]) -> None:
        """Write as a lagging replica does; a store can report that the table is gone."""
        for call in writes:
            with suppress(StoreRefused):
                await self.service.mediator.systems.get(call.fragment.system).store.write([call])


@pytest.fixture
async def harness(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Harness]:
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_catalogue(postgresql_config) as catalogue,
        scratch_systems(*configs) as scratch,
        service(scratch, catalogue, coordination_url=redis_config.url) as mediator_service,
    ):
        await mediator_service.favour()
        options = DataOptions(cursor_key=b"k" * 32)
        subscriptions = mediator_service.mediator.changes.subscriptions
        api = DataApi(
            mediator_service.mediator.data,
            options,
            mediator_service.observed.append,
            DataServices(subscriptions=subscriptions),
        )
        harness = Harness(mediator_service, api, unique("again"))
        await harness.set_schema()
        yield harness


async def unreachable() -> None:
    raise Unavailable("The coordination Redis does not answer.", system="coordination")


@pytest.mark.parametrize("is_cleared", [True, False])
async def test_the_next_database_of_a_name_has_another_feed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, *, is_cleared: bool
) -> None:
    if not is_cleared:
        monkeypatch.setattr(harness.service.mediator.clearing, "run", unreachable)
    for name in CLASSES:
        await harness.create(name, "old")
    await harness.until_relayed("old")
    late = await harness.residue("late")
    position = (await harness.get("changes", "after=beginning")).json()["position"]
    before = harness.id
    await harness.drop()
    await harness.set_schema()
    assert harness.id != before
    assert await harness.relayed_changes() == []
    for headers in ({}, {"accept": "text/event-stream"}):
        answer = await harness.get("changes", last_event_id=position, **headers)
        assert (answer.status, answer.json()["type"]) == (410, "/problems/gone")
    await harness.write(late)
    for name in CLASSES:
        await harness.create(name, "new")
    await harness.until_relayed("new")
    assert {id_ for _, id_ in await harness.relayed_changes()} == {"new"}


async def test_a_late_write_is_not_in_a_new_database_of_the_name(harness: Harness) -> None:
    late = await harness.residue("late")
    await harness.drop()
    await harness.write(late)
    await harness.set_schema()
    for name in CLASSES:
        with pytest.raises(NotFound):
            await harness.service.get(harness.database, name, "late")
        assert (await harness.get(name)).json()["items"] == []
    for call in late:
        get = Get(harness.database, call.fragment.class_name, "late")
        store = harness.service.mediator.systems.get(call.fragment.system).store
        route = harness.service.mediator.data.model.databases[get.database].classes[get.class_name]
        assert await store.recall(route.anchor, "late", call.operation) is None


async def test_cursors_of_an_earlier_database_are_gone(harness: Harness) -> None:
    for id_ in ("a", "b", "c"):
        await harness.create("onredis", id_)
    cursor = (await harness.get("onredis", "limit=1")).json()["next"]
    assert (await harness.get("onredis", f"limit=1&after={cursor}")).status == 200
    await harness.drop()
    await harness.set_schema()
    await harness.create("onredis", "d")
    answer = await harness.get("onredis", f"limit=1&after={cursor}")
    assert (answer.status, answer.json()["type"]) == (410, "/problems/gone")


async def test_runs_go_with_their_database(harness: Harness) -> None:
    runs, queue = harness.service.mediator.runs, harness.service.mediator.queue
    before, submitted = harness.id, []
    for _ in range(2):
        run, _ = await runs.submit(
            uuid4().hex,
            (harness.database, before),
            JOB,
            dry_run=False,
            key=unique("key"),
            fingerprint="f",
        )
        submitted.append(run)
    claimed = await queue.take(60.0)
    assert claimed is not None
    await harness.drop()
    await harness.set_schema()
    assert await runs.newest(harness.id, None, 10) == []
    for run in submitted:
        with pytest.raises(NotFound):
            await runs.find(harness.id, run.id)
    assert await queue.heartbeat(claimed, "running", {}, 60.0) == "lost"
    assert await queue.take(60.0) is None
    # The retention task removes their results as well.
    async with queue.forgetting(86_400.0, 10) as expired:
        assert {run.id for run in submitted} == {*expired}


async def test_the_data_of_a_dropped_database_is_cleared(
    harness: Harness, redis_config: SystemConfig
) -> None:
    mediator = harness.service.mediator
    for name in CLASSES:
        await harness.create(name, "old")
    await harness.until_relayed("old")
    before = harness.id
    late = await harness.residue("late")
    await harness.drop()
    await harness.write(late)
    await mediator.clearing.run()
    async with Redis.from_url(redis_config.url) as client:
        keys = [key async for key in client.scan_iter(f"*{before}*", count=10_000)]
        # `TTL` returns -1 for a key without expiry, -2 for an expired key.
        assert [key for key in keys if await client.ttl(key) == -1] == []
    for call in late:
        store = mediator.systems.get(call.fragment.system).store
        await store.prepare(call.fragment)
        assert await store.count(call.fragment) == 0
        await store.drop(call.fragment)


async def test_other_systems_are_cleared_although_one_is_gone(harness: Harness) -> None:
    mediator = harness.service.mediator
    late = [write for write in await harness.residue("late") if write.fragment.system != "mongo"]
    await harness.drop()
    await harness.write(late)
    await mediator.control.unregister("mongo")
    await mediator.clearing.run()
    for call in late:
        store = mediator.systems.get(call.fragment.system).store
        await store.prepare(call.fragment)
        assert await store.count(call.fragment) == 0
        await store.drop(call.fragment)
