"""Fields that are dropped with their values: unreachable at once, then erased on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import asyncpg
import pytest
from pymongo import AsyncMongoClient
from redis.asyncio import Redis

from mediator.base.concurrency import end
from mediator.base.errors import Conflict, DataWouldMove, Invalid, Unavailable
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control import erasure, membership
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.model.operations import Update
from mediator.stores.port import Fragment, SystemConfig
from tests.process.service import Service, field_on, service, unique

SYSTEMS: Final = ("redis", "postgres", "mongo")
DROP: Final = ChangeOptions(drop=frozenset({"products.price", "products.tags"}))
LAST: Final = ChangeOptions(drop=frozenset({"products.price"}))
WHOLE: Final = {"name": "n", "price": 777123, "tags": ["xyzzy"]}


def classes(system: str, *left: str, **more: Any) -> dict[str, Any]:
    """Return a class on one system, or on all three, without some of its fields."""
    held = [system] if system != "all" else list(SYSTEMS)
    fields = {f"name{number}": field_on(on, group=f"g_{on}") for number, on in enumerate(held)}
    fields["name"] = field_on(held[0], group=f"g_{held[0]}")
    fields["price"] = field_on(held[-1], "integer", index=True, group=f"g_{held[-1]}")
    fields["tags"] = field_on(held[0], "set", items="string", group=f"g_{held[0]}")
    kept = {name: field for name, field in fields.items() if name not in left}
    return {"products": {"fields": {**kept, **more}}}


async def filled(of: Service, system: str) -> str:
    database = await of.put_schema(classes(system))
    for id_ in ("a", "b", "c"):
        await of.create(database, "products", id_, **WHOLE)
    await of.create(database, "products", "d", name="n")
    return database


async def put(of: Service, database: str, schema: dict[str, Any], **options: Any) -> SchemaChange:
    return await of.mediator.control.set_schema(database, {"classes": schema}, **options)


async def dropped(of: Service, system: str) -> str:
    database = await filled(of, system)
    await put(of, database, classes(system, "price", "tags"), options=DROP)
    return database


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_values_of_dropped_fields_are_gone_at_once_and_for_good(
    mediator: Service, system: str
) -> None:
    database = await filled(mediator, system)
    less = classes(system, "price", "tags")
    with pytest.raises(DataWouldMove) as refused:
        await put(mediator, database, less)
    reasons = {each["node"]: each["reason"] for each in refused.value.extra["plan"]}
    assert reasons["products.price"].endswith("pass drop=products.price")
    change = await put(mediator, database, less, options=DROP, dry_run=True)
    assert "The field products.price is dropped; objects that lose a value: 3." in change.notes
    assert "The field products.tags is dropped; objects that lose a value: 3." in change.notes
    assert await mediator.values(database, "products", "a") == WHOLE
    before = await mediator.get(database, "products", "a")
    await put(mediator, database, less, options=DROP)
    after = await mediator.get(database, "products", "a")
    assert after.values == {"name": "n"}
    assert (after.versions, after.schema_version) == (before.versions, before.schema_version + 1)
    # A field of the name is another one, of another type, too.
    await put(mediator, database, classes(system, "tags", price=field_on("mongo")))
    route = mediator.mediator.data.model.databases[database].classes["products"]
    assert route.dropped == {"price", "tags"}
    assert await mediator.values(database, "products", "a") == {"name": "n"}
    await mediator.create(database, "products", "e", price="text")
    assert await mediator.values(database, "products", "e") == {"price": "text"}


def erased_here_only(patched: pytest.MonkeyPatch) -> None:
    """Leave nothing to erase to what does so every few seconds: only the present task does."""
    ours, classes_to_erase = asyncio.current_task(), erasure.classes_to_erase

    def of_ours(databases: Iterable[StoredDatabase]) -> list[tuple[str, str]]:
        return classes_to_erase(databases) if asyncio.current_task() is ours else []

    patched.setattr(erasure, "classes_to_erase", of_ours)


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_values_of_dropped_fields_are_erased(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """In steps that a run ends and the next one goes on with; then nothing is left to be done."""
    with monkeypatch.context() as patched:
        patched.setattr(erasure, "classes_to_erase", lambda _: [])
        database = await dropped(mediator, system)
        assert await held(mediator, database)
        assert await names_of(mediator, database) == (["price", "tags"], ["price", "tags"])
    erased_here_only(monkeypatch)
    monkeypatch.setattr(erasure, "PAGE", 1)
    monkeypatch.setattr(erasure, "ERASE_S", -1.0)
    runs = 0
    while (await names_of(mediator, database))[1]:
        await mediator.mediator.erasure.run()
        runs += 1
    assert runs > 1 or system == "postgres"
    assert (await names_of(mediator, database))[0] == ["price", "tags"]
    assert not await held(mediator, database)
    for id_ in ("a", "d"):
        assert await mediator.values(database, "products", id_) == {"name": "n"}


async def names_of(of: Service, database: str) -> tuple[list[str], list[str]]:
    """Return the stored names that are not free any more, and those that objects still hold."""
    layout = (await of.mediator.schemas.stored(database)).layout["products"]
    return layout["dropped"], layout["erasing"]


async def held(of: Service, database: str) -> list[str]:
    """Return where the stores still have something of the values, besides their outboxes."""
    return [
        *await _held_by_redis(of, database),
        *await _held_by_postgres(of, database),
        *await _held_by_mongo(of, database),
    ]


async def _held_by_redis(of: Service, database: str) -> list[str]:
    config, left = of.configs["redis"], []
    async with Redis.from_url(config.url) as client:
        pattern = f"*{config.namespace}*:{database}.*"
        async for key in client.scan_iter(match=pattern, count=10_000):
            kind = await client.type(key)
            if kind == b"hash":
                fields = await client.hgetall(key)
                left += [key for name in fields if name in (b"price", b"tags")]
            elif b":f.tags" in key or b":i.price" in key:
                left.append(key)
    return left


async def _held_by_postgres(of: Service, database: str) -> list[str]:
    config = of.configs["postgres"]
    connection = await asyncpg.connect(config.url)
    try:
        rows = await connection.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = $1"
            " AND table_name LIKE $2 AND column_name IN ('price', 'tags')",
            config.namespace,
            f"{database}.%",
        )
    finally:
        await connection.close()
    return [row["column_name"] for row in rows]


async def _held_by_mongo(of: Service, database: str) -> list[str]:
    config, left = of.configs["mongo"], []
    async with AsyncMongoClient[dict[str, Any]](config.url) as client:
        for name in await client.list_database_names():
            if name.startswith(config.namespace) and database in name:
                for collection in await client[name].list_collection_names():
                    async for found in client[name][collection].find():
                        left += [n for n in found.get("values", {}) if n in ("price", "tags")]
    return left


async def test_a_dropped_field_must_be_there_and_leave(mediator: Service) -> None:
    database = await filled(mediator, "redis")
    for node, reason in (
        ("products.name", "products.name is in the new schema"),
        ("products.prize", 'there is no field products.prize; did you mean "products.price"?'),
        ("goods.price", "there is no field goods.price"),
    ):
        options = ChangeOptions(drop=frozenset({node, "products.price"}))
        with pytest.raises(Invalid) as refused:
            await put(mediator, database, classes("redis", "price"), options=options)
        assert [each.detail for each in refused.value.locations] == [reason]


def split(**fields: str) -> dict[str, Any]:
    """Return a class with fields on systems; the anchor is on PostgreSQL."""
    own = {name: field_on(system, group=f"g_{system}") for name, system in fields.items()}
    return {"products": {"fields": {"name": field_on("postgres"), **own}}}


@pytest.mark.parametrize("system", ["redis", "mongo"])
async def test_the_last_field_on_a_system_is_dropped(mediator: Service, system: str) -> None:
    """The class leaves the system, and finds nothing of its past when it returns, ever so often."""
    database = await mediator.put_schema(split(price=system))
    await mediator.create(database, "products", "a", name="n", price="1")
    for value in ("2", "3"):
        await put(mediator, database, split(), options=LAST)
        assert mediator.systems_of(database, "products") == ("postgres",)
        assert await mediator.values(database, "products", "a") == {"name": "n"}
        await mediator.mediator.data.write(
            Update(database, "products", "a", unique("op"), values={"name": "n"})
        )
        await put(mediator, database, split(price=system))
        assert mediator.systems_of(database, "products") == ("postgres", system)
        assert await mediator.values(database, "products", "a") == {"name": "n"}
        await mediator.mediator.data.write(
            Update(database, "products", "a", unique("op"), values={"price": value})
        )
        assert await mediator.values(database, "products", "a") == {"name": "n", "price": value}


async def test_the_system_that_knows_the_objects_is_not_left(mediator: Service) -> None:
    database = await mediator.put_schema(split(price="mongo"))
    await mediator.create(database, "products", "a", name="n", price="1")
    less = split(price="mongo")
    del less["products"]["fields"]["name"]
    options = ChangeOptions(drop=frozenset({"products.name"}))
    with pytest.raises(DataWouldMove):
        await put(mediator, database, less, options=options)
    assert await mediator.values(database, "products", "a") == {"name": "n", "price": "1"}


@pytest.fixture
async def late(mediator: Service, system_configs: Sequence[SystemConfig]) -> AsyncIterator[Service]:
    """A replica that follows only when a test lets it."""
    async with AsyncExitStack() as stack:
        started = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
        await started.mediator.scheduler.stop()
        yield started


async def test_a_system_is_not_left_while_a_replica_may_write_there(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could acknowledge a joint write that has a part on the system."""
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    database = await mediator.put_schema(split(price="mongo"))
    await mediator.create(database, "products", "a", name="n", price="1")
    await late.mediator.membership.renew()
    with pytest.raises(Unavailable):
        await put(mediator, database, split(), options=LAST)
    await late.mediator.data.write(
        Update(database, "products", "a", unique("op"), values={"name": "m", "price": "2"})
    )
    assert await mediator.values(database, "products", "a") == {"name": "m", "price": "2"}


async def test_a_late_drop_removes_nothing_that_came_back(
    mediator: Service, replica: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await mediator.put_schema(split(price="mongo"))
    await mediator.create(database, "products", "a", name="n", price="1")
    store = mediator.mediator.systems.get("mongo").store
    reached, go_on, drop = asyncio.Event(), asyncio.Event(), store.drop

    async def stalled(fragment: Fragment) -> None:
        reached.set()
        await go_on.wait()
        await drop(fragment)

    monkeypatch.setattr(store, "drop", stalled)
    change = asyncio.create_task(put(mediator, database, split(), options=LAST))
    await reached.wait()
    await put(replica, database, split(price="mongo"))
    await replica.mediator.data.write(
        Update(database, "products", "a", unique("op"), values={"price": "2"})
    )
    go_on.set()
    await change
    for of in (mediator, replica):
        assert await of.values(database, "products", "a") == {"name": "n", "price": "2"}


async def test_an_erasure_that_ends_during_a_change_does_not_refuse_it(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased_here_only(monkeypatch)
    database = await filled(mediator, "redis")
    await put(mediator, database, classes("redis", "price", "tags"), options=DROP)
    catalogue, erasing = mediator.mediator.stored_schemas, mediator.mediator.erasure
    put_schema, late = catalogue.put, 0

    async def late_put(*change: Any) -> Any:
        nonlocal late
        late += 1
        await erasing.run()
        return await put_schema(*change)

    monkeypatch.setattr(catalogue, "put", late_put)
    change = await put(mediator, database, classes("redis", "tags", price=field_on("redis")))
    assert (change.version, late) == (3, 2)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_nothing_is_erased_while_a_replica_may_write_it(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    erased_here_only(monkeypatch)
    database = await filled(mediator, system)
    await late.mediator.membership.renew()
    another = classes(system, "tags", price=field_on(system, "integer"))
    with monkeypatch.context() as soon:
        soon.setattr(membership, "TIMEOUT_S", 0.2)
        await put(mediator, database, classes(system, "price", "tags"), options=DROP)
        with pytest.raises(Unavailable):
            await mediator.mediator.erasure.run()
        await late.mediator.data.write(
            Update(database, "products", "a", unique("op"), values={"price": 1, "name": "late"})
        )
        assert await mediator.values(database, "products", "a") == {"name": "late"}
        with pytest.raises(Unavailable):  # a field of this name comes when nobody means another one
            await put(mediator, database, another)
    await late.mediator.membership.renew()
    with pytest.raises(Conflict, match="no longer has the field price"):
        await late.mediator.data.write(
            Update(database, "products", "a", unique("op"), values={"price": 2})
        )
    late_follows = asyncio.create_task(_follow(late))
    try:
        await mediator.mediator.erasure.run()
        await put(mediator, database, another)
        assert await mediator.values(database, "products", "a") == {"name": "late"}
    finally:
        await end([late_follows])


async def _follow(late: Service) -> None:
    while True:
        await late.mediator.membership.renew()
        await asyncio.sleep(0.01)
