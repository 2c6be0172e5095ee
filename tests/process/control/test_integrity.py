"""Writes that bypass the mediator are found on each store, without false findings."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client import CollectorRegistry
from pymongo import AsyncMongoClient
from redis.asyncio import Redis

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.commands.doctor.service import examine_service
from mediator.base.clock import SystemClock
from mediator.base.errors import Conflict, NotFound
from mediator.changes.feed import PARTITIONS, Feed
from mediator.control.port import ChangeOptions
from mediator.integrity.check import Integrity, IntegrityReport
from mediator.integrity.histories import GroupHistory
from mediator.model.change import Change
from mediator.model.operations import Delete, Update
from mediator.stores.postgres.layout import column_name, table_name
from tests.process.service import (
    Service,
    field_on,
    unique,
)

CLASSES = {
    "onredis": {"fields": {"title": field_on("redis"), "hits": field_on("redis", "integer")}},
    "onpostgres": {
        "fields": {"title": field_on("postgres"), "hits": field_on("postgres", "integer")}
    },
    "onmongo": {"fields": {"title": field_on("mongo"), "hits": field_on("mongo", "integer")}},
}


async def check(mediator: Service, database: str) -> IntegrityReport:
    return await mediator.mediator.integrity.check(database, 10_000)


async def fill_database(mediator: Service) -> str:
    database = await mediator.put_schema(CLASSES)
    for name in CLASSES:
        for id_ in ("a", "b", "c"):
            await mediator.create(database, name, id_, title="first", hits=1)
    return database


async def update(mediator: Service, database: str, name: str, id_: str, **values: Any) -> None:
    await mediator.mediator.data.write(Update(database, name, id_, unique("op"), values=values))


def table_of(mediator: Service, database: str) -> str:
    route = mediator.mediator.data.model.databases[database].classes["onpostgres"]
    return table_name(database, route.anchor.stored_as)


class ForeignWriter:
    """Writes to stores directly, bypassing the mediator."""

    def __init__(self, mediator: Service, database: str) -> None:
        self._configs = mediator.configs
        self._database = database
        self._table = table_of(mediator, database)

    async def title(self, name: str, id_: str, title: str) -> None:
        await getattr(self, f"_{name}")(id_, title)

    async def _onredis(self, id_: str, title: str) -> None:
        config = self._configs["redis"]
        async with Redis.from_url(config.url) as client:
            pattern = f"*{config.namespace}*{self._database}*"
            matches: list[tuple[Any, Any, bytes]] = []
            async for key in client.scan_iter(match=pattern, count=10_000):
                if await client.type(key) == b"hash" and key.endswith(id_.encode()):
                    values = await client.hgetall(key)
                    matches += [
                        (key, f, v)
                        for f, v in values.items()
                        if isinstance(v, bytes) and b"first" in v
                    ]
            assert len(matches) == 1, matches
            key, field, value = matches[0]
            await client.hset(key, field, value.replace(b"first", title.encode()))

    async def _onpostgres(self, id_: str, title: str) -> None:
        config = self._configs["postgres"]
        connection = await asyncpg.connect(config.url)
        table = f'"{config.namespace}"."{self._table}"'
        column = column_name("title")
        status = await connection.execute(
            f'UPDATE {table} SET "{column}" = $1 WHERE id = $2', title, id_
        )
        await connection.close()
        assert status == "UPDATE 1"

    async def _onmongo(self, id_: str, title: str) -> None:
        config = self._configs["mongo"]
        async with AsyncMongoClient[dict[str, Any]](config.url) as client:
            for name in await client.list_database_names():
                if name.startswith(config.namespace) and self._database in name:
                    for collection in await client[name].list_collection_names():
                        if "onmongo" in collection:
                            where = {"values.title": {"$exists": True}, "_id": id_}
                            result = await client[name][collection].update_one(
                                where, {"$set": {"values.title": title}}
                            )
                            assert result.modified_count == 1
                            return
        raise AssertionError("no such collection")


@pytest.mark.parametrize("name", CLASSES)
async def test_a_write_that_bypasses_the_mediator_is_found(with_feed: Service, name: str) -> None:
    database = await fill_database(with_feed)
    clean = await check(with_feed, database)
    assert (clean.compared, clean.counts, clean.older) == (9, {}, 0)
    await ForeignWriter(with_feed, database).title(name, "b", "bypass")
    report = await check(with_feed, database)
    assert report.counts == {"changed": 1}
    [example] = report.examples
    assert (example.class_name, example.id, example.fields) == (name, "b", ("title",))


@pytest.mark.parametrize("name", CLASSES)
async def test_a_mismatch_is_found_after_a_later_write(with_feed: Service, name: str) -> None:
    database = await fill_database(with_feed)
    await check(with_feed, database)  # afterwards all outboxes are empty
    await ForeignWriter(with_feed, database).title(name, "b", "bypass")
    await update(with_feed, database, name, "b", hits=2)
    assert (await check(with_feed, database)).counts == {"changed": 1}
    await update(with_feed, database, name, "b", title="ours again")
    report = await check(with_feed, database)
    assert report.counts == {"overwritten": 1}
    assert report.examples[0].fields == ("title",)


async def test_records_deleted_and_created_by_other_programs_are_found(with_feed: Service) -> None:
    database = await fill_database(with_feed)
    await check(with_feed, database)
    config = with_feed.configs["postgres"]
    table = f'"{config.namespace}"."{table_of(with_feed, database)}"'
    connection = await asyncpg.connect(config.url)
    columns = [
        row["column_name"]
        for row in await connection.fetch(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = $1 AND table_name = $2",
            config.namespace,
            table_of(with_feed, database),
        )
        if row["column_name"] != "id"
    ]
    names = ", ".join(f'"{c}"' for c in columns)
    await connection.execute(
        f"INSERT INTO {table} (id, {names}) SELECT 'x', {names} FROM {table} WHERE id = 'c'"
    )
    await connection.execute(f"DELETE FROM {table} WHERE id = 'a'")
    await connection.close()
    report = await check(with_feed, database)
    wrong = {(m.id, m.wrong) for m in report.examples}
    assert ("a", "gone") in wrong
    assert ("x", "unrecorded") in wrong or report.older == 1


async def test_concurrent_writes_cause_no_findings(with_feed: Service) -> None:
    database = await fill_database(with_feed)
    ended = asyncio.Event()

    async def write(name: str) -> None:
        step = 0
        while not ended.is_set():
            step += 1
            id_ = f"w{step % 5}"
            if step % 11 == 0:
                delete = Delete(database, name, "w0", unique("op"))
                await asyncio.gather(with_feed.mediator.data.write(delete), return_exceptions=True)
            elif step <= 5 or id_ == "w0":
                create = with_feed.create(database, name, id_, title="t", hits=step)
                await asyncio.gather(create, return_exceptions=True)
            else:
                await update(with_feed, database, name, id_, hits=step)

    async with asyncio.TaskGroup() as tasks:
        for name in CLASSES:
            tasks.create_task(write(name))
        reports = [await check(with_feed, database) for _ in range(3)]
        ended.set()
    assert [report.counts for report in reports] == [{}, {}, {}], [r.examples for r in reports]


@pytest.mark.parametrize("name", CLASSES)
async def test_objects_of_a_former_class_of_the_name_are_not_reported_missing(
    with_feed: Service, name: str
) -> None:
    database = await fill_database(with_feed)
    await check(with_feed, database)  # afterwards the feed has all their changes
    await recreate_class(with_feed, database, name)
    after = await check(with_feed, database)
    assert (after.compared, after.counts, after.left_out) == (6, {}, 0)
    await with_feed.create(database, name, "a", title="first", hits=1)
    await with_feed.create(database, name, "new", title="first", hits=1)
    clean = await check(with_feed, database)
    assert (clean.compared, clean.counts, clean.older) == (8, {}, 0)
    await ForeignWriter(with_feed, database).title(name, "a", "bypass")
    report = await check(with_feed, database)
    assert [(m.class_name, m.id, m.wrong) for m in report.examples] == [(name, "a", "changed")]


async def recreate_class(mediator: Service, database: str, name: str) -> None:
    """Drop a class with its objects, and create one of the same name."""
    other_classes = {
        class_name: schema for class_name, schema in CLASSES.items() if class_name != name
    }
    drop = ChangeOptions(drop=frozenset({name}))
    await mediator.mediator.control.set_schema(database, {"classes": other_classes}, options=drop)
    await mediator.mediator.control.set_schema(database, {"classes": CLASSES})


async def test_objects_seem_older_than_their_class_if_a_clock_is_behind(with_feed: Service) -> None:
    """With a slow clock, changes seem to be of a former class, which proves nothing."""
    database = await fill_database(with_feed)
    model = with_feed.mediator.data.model
    route = model.databases[database]
    ahead_us = time.time_ns() // 1_000 + 60_000_000
    classes = {
        name: replace(class_route, made_us=ahead_us) for name, class_route in route.classes.items()
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(model.databases, database, replace(route, classes=classes))
        report = await check(with_feed, database)
    assert (report.compared, report.older, report.counts) == (0, 9, {})


async def test_no_more_objects_are_compared_than_requested(with_feed: Service) -> None:
    database = await fill_database(with_feed)
    report = await with_feed.mediator.integrity.check(database, 4)
    assert (report.compared, report.left_out, report.counts) == (4, 5, {})


class CrowdedFeed:
    """A feed that continues with the changes of many other objects."""

    MANY = 100_000

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    async def read(
        self, database: str, partition: int, after: str, limit: int
    ) -> list[tuple[str, Change]]:
        changes: list[tuple[str, Change]] = []
        if not after.startswith("more-"):
            changes = await self._feed.read(database, partition, after, limit)
        if partition < PARTITIONS - 1:
            return changes
        first = (
            0 if changes or not after.startswith("more-") else int(after.removeprefix("more-")) + 1
        )
        last = min(first + limit - len(changes), self.MANY)
        return changes + [(f"more-{n}", self._change(n)) for n in range(first, last)]

    def _change(self, number: int) -> Change:
        now_us, values = time.time_ns() // 1_000, {"title": "x"}
        names = ("d", "onredis", f"object-{number}", "g")
        return Change("i", *names, now_us, "create", None, values, now_us, "d")


async def test_objects_beyond_the_limit_take_no_memory(with_feed: Service) -> None:
    """A feed can have changes of millions of objects."""
    database, shared = await fill_database(with_feed), with_feed.mediator.coordination
    assert shared is not None
    crowded: Any = CrowdedFeed(shared.feed)
    integrity = Integrity(with_feed.mediator.data, crowded, SystemClock())
    tracemalloc.start()
    try:
        report = await integrity.check(database, 9)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
    assert (report.compared, report.older, report.counts) == (9, 0, {})
    assert report.left_out == pytest.approx(CrowdedFeed.MANY, rel=0.01)


async def test_a_comparison_without_database_or_feed_is_refused(with_feed: Service) -> None:
    with pytest.raises(NotFound):
        await check(with_feed, "nowhere")
    with pytest.raises(Conflict, match="COORDINATION"):
        await Integrity(with_feed.mediator.data, None, SystemClock()).check("x", 1)


async def test_the_doctor_reports_a_mismatch(
    with_feed: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await fill_database(with_feed)
    await check(with_feed, database)
    await ForeignWriter(with_feed, database).title("onmongo", "a", "bypass")
    app = create_admin_app(
        with_feed.mediator.control,
        CollectorRegistry(),
        AdminContext(integrity=with_feed.mediator.integrity),
    )
    transport = httpx.ASGITransport(app)

    class Client(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options, transport=transport)

    monkeypatch.setattr("app.commands.doctor.service.httpx.AsyncClient", Client)
    findings = {f.what: f for f in await examine_service("http://portolan", 100)}
    assert findings["service"].found
    assert findings["system redis (redis)"].found
    finding = findings[f"objects of {database}"]
    assert not finding.found
    assert finding.fatal
    assert "onmongo/a (title): changed" in finding.detail


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[", "nowhere", "http://nowhere:x"])
async def test_an_address_that_does_not_answer_is_a_finding(url: str) -> None:
    [finding] = await examine_service(url, 1)
    assert finding.fatal
    assert not finding.found
    assert "does not answer" in finding.detail


@pytest.mark.parametrize(
    "answer",
    [
        {"type": "/problems/not-found", "status": 404},
        {"ready": True},
        {"ready": True, "degraded": 5},
        {"ready": True, "degraded": [], "items": [{}]},
        {"ready": True, "degraded": [], "items": 1},
        [],
        "hello",
        None,
    ],
)
async def test_an_address_that_is_not_an_admin_api_is_a_finding(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
            super().__init__(**options, transport=transport)

    monkeypatch.setattr("app.commands.doctor.service.httpx.AsyncClient", Client)
    [finding] = await examine_service("http://portolan", 1)
    assert finding.fatal
    assert "not as an admin API" in finding.detail
    assert "8081" in finding.remedy


def change(version: int, kind: str, before: Any, after: Any) -> Change:
    return Change("i", "d", "c", "o", "g", version, kind, before, after, version, "d")


def test_a_history_knows_only_the_fields_of_its_changes() -> None:
    history = GroupHistory()
    history.add(change(2, "update", {"a": 1}, {"a": 2}))
    assert history.differences(("a", "b"), {"a": 2, "b": 9}) == ()
    assert history.differences(("a", "b"), {"a": 2.0}) == ("a",)
    history.add(change(3, "replace", {"a": 2, "b": 9}, {"b": 1}))
    assert history.differences(("a", "b"), {"b": 1}) == ()
    assert history.differences(("a", "b"), {"a": 2, "b": 1}) == ("a",)
    history.add(change(2, "update", {"b": 1}, {"b": 5}))  # redelivered
    assert history.differences(("a", "b"), {"b": 1}) == ()
    history.add(change(4, "delete", {"b": 1}, None))
    assert not history.exists
    assert not history.overwritten
    history.add(change(5, "create", None, {"b": 7}))
    history.add(change(6, "update", {"b": 8}, {"b": 9}))
    assert history.overwritten == {"b"}
