"""Fields dropped with their values: unreachable at once, then erased on every store."""

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
VALUES: Final = {"name": "n", "price": 777123, "tags": ["xyzzy"]}


def classes(system: str, *without: str, **more: Any) -> dict[str, Any]:
    """Return a class on one system, or on all three, without some of its fields."""
    systems = [system] if system != "all" else list(SYSTEMS)
    fields = {f"name{number}": field_on(on, group=f"g_{on}") for number, on in enumerate(systems)}
    fields["name"] = field_on(systems[0], group=f"g_{systems[0]}")
    fields["price"] = field_on(systems[-1], "integer", index=True, group=f"g_{systems[-1]}")
    fields["tags"] = field_on(systems[0], "set", items="string", group=f"g_{systems[0]}")
    remaining = {name: field for name, field in fields.items() if name not in without}
    return {"products": {"fields": {**remaining, **more}}}


async def fill_database(mediator: Service, system: str) -> str:
    database = await mediator.put_schema(classes(system))
    for id_ in ("a", "b", "c"):
        await mediator.create(database, "products", id_, **VALUES)
    await mediator.create(database, "products", "d", name="n")
    return database


async def put(
    mediator: Service, database: str, schema: dict[str, Any], **options: Any
) -> SchemaChange:
    return await mediator.mediator.control.set_schema(database, {"classes": schema}, **options)


async def drop_fields(mediator: Service, system: str) -> str:
    database = await fill_database(mediator, system)
    await put(mediator, database, classes(system, "price", "tags"), options=DROP)
    return database


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_values_of_dropped_fields_are_gone_at_once_and_for_good(
    mediator: Service, system: str
) -> None:
    database = await fill_database(mediator, system)
    less = classes(system, "price", "tags")
    with pytest.raises(DataWouldMove) as refused:
        await put(mediator, database, less)
    reasons = {move["node"]: move["reason"] for move in refused.value.extra["plan"]}
    assert reasons["products.price"].endswith("pass drop=products.price")
    change = await put(mediator, database, less, options=DROP, dry_run=True)
    assert "The field products.price is dropped; objects that lose a value: 3." in change.notes
    assert "The field products.tags is dropped; objects that lose a value: 3." in change.notes
    assert await mediator.values(database, "products", "a") == VALUES
    before = await mediator.get(database, "products", "a")
    await put(mediator, database, less, options=DROP)
    after = await mediator.get(database, "products", "a")
    assert after.values == {"name": "n"}
    assert (after.versions, after.schema_version) == (before.versions, before.schema_version + 1)
    # A new field of the name can have another type.
    await put(mediator, database, classes(system, "tags", price=field_on("mongo")))
    route = mediator.mediator.data.model.databases[database].classes["products"]
    assert route.dropped == {"price", "tags"}
    assert await mediator.values(database, "products", "a") == {"name": "n"}
    await mediator.create(database, "products", "e", price="text")
    assert await mediator.values(database, "products", "e") == {"price": "text"}


def erase_here_only(patched: pytest.MonkeyPatch) -> None:
    """Let only the current task erase; the periodic task finds nothing to erase."""
    this_task, classes_to_erase = asyncio.current_task(), erasure.classes_to_erase

    def classes_of_this_task(databases: Iterable[StoredDatabase]) -> list[tuple[str, str]]:
        return classes_to_erase(databases) if asyncio.current_task() is this_task else []

    patched.setattr(erasure, "classes_to_erase", classes_of_this_task)


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_values_of_dropped_fields_are_erased(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """In steps: each run continues where the last one ended, until nothing remains."""
    with monkeypatch.context() as patched:
        patched.setattr(erasure, "classes_to_erase", lambda _: [])
        database = await drop_fields(mediator, system)
        assert await residue(mediator, database)
        assert await names_of(mediator, database) == (["price", "tags"], ["price", "tags"])
    erase_here_only(monkeypatch)
    monkeypatch.setattr(erasure, "PAGE", 1)
    monkeypatch.setattr(erasure, "ERASE_S", -1.0)
    runs = 0
    while (await names_of(mediator, database))[1]:
        await mediator.mediator.erasure.run()
        runs += 1
    assert runs > 1 or system == "postgres"
    assert (await names_of(mediator, database))[0] == ["price", "tags"]
    assert not await residue(mediator, database)
    for id_ in ("a", "d"):
        assert await mediator.values(database, "products", id_) == {"name": "n"}


async def names_of(mediator: Service, database: str) -> tuple[list[str], list[str]]:
    """Return the stored names that were dropped, and those that objects still hold."""
    layout = (await mediator.mediator.schemas.stored(database)).layout["products"]
    return layout["dropped"], layout["erasing"]


async def residue(mediator: Service, database: str) -> list[str]:
    """Return where the stores still have the dropped values, besides their outboxes."""
    return [
        *await _redis_residue(mediator, database),
        *await _postgres_residue(mediator, database),
        *await _mongo_residue(mediator, database),
    ]


async def _redis_residue(mediator: Service, database: str) -> list[str]:
    config, keys = mediator.configs["redis"], []
    async with Redis.from_url(config.url) as client:
        pattern = f"*{config.namespace}*:{database}.*"
        async for key in client.scan_iter(match=pattern, count=10_000):
            kind = await client.type(key)
            if kind == b"hash":
                fields = await client.hgetall(key)
                keys += [key for name in fields if name in (b"price", b"tags")]
            elif b":f.tags" in key or b":i.price" in key:
                keys.append(key)
    return keys


async def _postgres_residue(mediator: Service, database: str) -> list[str]:
    config = mediator.configs["postgres"]
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


async def _mongo_residue(mediator: Service, database: str) -> list[str]:
    config, names = mediator.configs["mongo"], []
    async with AsyncMongoClient[dict[str, Any]](config.url) as client:
        for name in await client.list_database_names():
            if name.startswith(config.namespace) and database in name:
                for collection in await client[name].list_collection_names():
                    async for document in client[name][collection].find():
                        names += [n for n in document.get("values", {}) if n in ("price", "tags")]
    return names


async def test_a_dropped_field_must_exist_and_be_missing_from_the_new_schema(
    mediator: Service,
) -> None:
    database = await fill_database(mediator, "redis")
    for node, reason in (
        ("products.name", "products.name is in the new schema"),
        ("products.prize", 'there is no field products.prize; did you mean "products.price"?'),
        ("goods.price", "there is no field goods.price"),
    ):
        options = ChangeOptions(drop=frozenset({node, "products.price"}))
        with pytest.raises(Invalid) as refused:
            await put(mediator, database, classes("redis", "price"), options=options)
        assert [location.detail for location in refused.value.locations] == [reason]


def split(**fields: str) -> dict[str, Any]:
    """Return a class with a field on each given system; the anchor is on PostgreSQL."""
    on_systems = {name: field_on(system, group=f"g_{system}") for name, system in fields.items()}
    return {"products": {"fields": {"name": field_on("postgres"), **on_systems}}}


@pytest.mark.parametrize("system", ["redis", "mongo"])
async def test_the_last_field_on_a_system_is_dropped(mediator: Service, system: str) -> None:
    """The class leaves the system; each time it returns it finds no former values."""
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


async def test_the_anchor_system_is_not_left(mediator: Service) -> None:
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
    """A replica that follows the catalogue only on a test's request."""
    async with AsyncExitStack() as stack:
        instance = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
        await instance.mediator.scheduler.stop()
        yield instance


async def test_a_system_is_not_left_while_a_replica_can_write_there(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could acknowledge a joint write with a fragment on the system."""
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
    reached, resume, drop = asyncio.Event(), asyncio.Event(), store.drop

    async def stall(fragment: Fragment) -> None:
        reached.set()
        await resume.wait()
        await drop(fragment)

    monkeypatch.setattr(store, "drop", stall)
    change = asyncio.create_task(put(mediator, database, split(), options=LAST))
    await reached.wait()
    await put(replica, database, split(price="mongo"))
    await replica.mediator.data.write(
        Update(database, "products", "a", unique("op"), values={"price": "2"})
    )
    resume.set()
    await change
    for plane in (mediator, replica):
        assert await plane.values(database, "products", "a") == {"name": "n", "price": "2"}


async def test_an_erasure_that_ends_during_a_change_does_not_refuse_it(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase_here_only(monkeypatch)
    database = await fill_database(mediator, "redis")
    await put(mediator, database, classes("redis", "price", "tags"), options=DROP)
    catalogue, erasing = mediator.mediator.stored_schemas, mediator.mediator.erasure
    put_schema, attempts = catalogue.put, 0

    async def erase_then_put(*change: Any) -> Any:
        nonlocal attempts
        attempts += 1
        await erasing.run()
        return await put_schema(*change)

    monkeypatch.setattr(catalogue, "put", erase_then_put)
    change = await put(mediator, database, classes("redis", "tags", price=field_on("redis")))
    assert (change.version, attempts) == (3, 2)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_nothing_is_erased_while_a_replica_can_write_it(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    erase_here_only(monkeypatch)
    database = await fill_database(mediator, system)
    await late.mediator.membership.renew()
    another = classes(system, "tags", price=field_on(system, "integer"))
    with monkeypatch.context() as patched:
        patched.setattr(membership, "TIMEOUT_S", 0.2)
        await put(mediator, database, classes(system, "price", "tags"), options=DROP)
        with pytest.raises(Unavailable):
            await mediator.mediator.erasure.run()
        await late.mediator.data.write(
            Update(database, "products", "a", unique("op"), values={"price": 1, "name": "late"})
        )
        assert await mediator.values(database, "products", "a") == {"name": "late"}
        with pytest.raises(Unavailable):  # a replica still has the former field of this name
            await put(mediator, database, another)
    await late.mediator.membership.renew()
    with pytest.raises(Conflict, match="no longer has the field price"):
        await late.mediator.data.write(
            Update(database, "products", "a", unique("op"), values={"price": 2})
        )
    following = asyncio.create_task(_follow(late))
    try:
        await mediator.mediator.erasure.run()
        await put(mediator, database, another)
        assert await mediator.values(database, "products", "a") == {"name": "late"}
    finally:
        await end([following])


async def _follow(late: Service) -> None:
    while True:
        await late.mediator.membership.renew()
        await asyncio.sleep(0.01)
