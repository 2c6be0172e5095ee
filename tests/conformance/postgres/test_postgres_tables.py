"""PostgreSQL's tables change with the schemas of their classes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from string import ascii_letters
from typing import Any

import asyncpg
import pytest

from mediator.model.filters import Compare, Comparison, Contains
from mediator.model.query import OrderBy
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    Read,
    SearchRequest,
    StoreError,
    StoreRefused,
    SystemConfig,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from mediator.stores.postgres.layout import fragment_table
from tests.conformance.in_order import in_order
from tests.conformance.postgres.records import (
    NAMESPACE,
    fragment_of,
    get,
    make_write,
    put,
    table_of,
    write_one,
)
from tests.faults.conditions import eventually


async def test_replicas_prepare_at_once(config: SystemConfig) -> None:
    stores = [PostgresStore(replace(config, namespace=f"{NAMESPACE}_many")) for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    fragment = fragment_of(Field("n", FieldType.INTEGER, index=True))
    await asyncio.gather(*(store.prepare(fragment) for store in stores * 2))
    assert await stores[0].count(fragment) == 0
    await stores[0].use(lambda c: c.execute(f'DROP SCHEMA "{NAMESPACE}_many" CASCADE'))
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_class_grows_shrinks_and_grows(store: PostgresStore) -> None:
    n, s = Field("n", FieldType.INTEGER, index=True), Field("s", FieldType.STRING, group="side")
    small, large = (fragment_of(*fields, name="growing") for fields in ((n,), (n, s)))
    await store.prepare(small)
    first = await put(store, small, "x", n=1)
    await store.prepare(large, small)
    (record,) = await store.read([Read(large, "x")])
    assert record is not None
    assert (record.values, record.versions) == ({"n": 1}, {**first.versions, "side": 0})
    values: dict[str, Any] = {"s": "earlier"}
    await write_one(
        store, make_write(large, "x", WriteKind.UPDATE, values=values, groups=("side",))
    )
    await put(store, large, "y", s=None)
    await store.prepare(large)
    assert await get(store, large, "x") == {"n": 1, "s": "earlier"}
    await store.prepare(small, large)
    assert await get(store, small, "x") == {"n": 1}
    regrown = replace(large, schema_version=4)
    await store.prepare(regrown, small)
    assert [await get(store, regrown, id_) for id_ in "xy"] == [{"n": 1}, {}]
    await put(store, regrown, "x", s="now")
    await store.prepare(replace(regrown), small)  # another replica, with the schema that it knew
    assert await get(store, regrown, "x") == {"s": "now"}
    await store.drop(regrown)


async def test_a_column_of_another_type_is_not_used(store: PostgresStore) -> None:
    number = fragment_of(Field("f", FieldType.INTEGER), name="retyped")
    text = fragment_of(Field("f", FieldType.STRING), name="retyped")
    await store.prepare(number)
    with pytest.raises(StoreRefused, match="bigint"):
        await store.prepare(text)
    await store.drop(number)


async def test_indexes_come_and_go(store: PostgresStore, admin: Any) -> None:
    count = "SELECT count(*) FROM pg_indexes WHERE tablename = 'd.indexed'"
    plain, indexed = (
        fragment_of(Field("s", FieldType.STRING, index=i), name="indexed") for i in (False, True)
    )
    await store.prepare(plain)
    before = await admin.fetchval(count)
    await store.prepare(indexed, plain)
    assert await admin.fetchval(count) == before + 1
    texts = ["a" * 5_000, "a" * 5_000 + "b", "a" * 400, "é" * 3_000]
    for i, text in enumerate(texts):
        await put(store, indexed, str(i), s=text)
    options: dict[str, Any] = {"descending": True, "limit": 2}
    top = await in_order(store, indexed, "s", **options)
    assert [record.id for record in top] == ["3", "1"]
    next_page = await in_order(store, indexed, "s", after=(top[-1].values["s"], "1"), **options)
    assert [record.id for record in next_page] == ["0", "2"]
    await store.prepare(plain, indexed)
    assert await admin.fetchval(count) == before
    await store.drop(plain)


def incompressible_field(number: int) -> Field:
    """Return a field with a name that does not compress with the others'."""
    return Field(f"f{sha256(str(number).encode()).hexdigest()[:39]}", FieldType.INTEGER)


async def definition(admin: Any, fragment: Fragment) -> str:
    """Return the definition of a class's only index."""
    query = "SELECT indexdef FROM pg_indexes WHERE tablename = $1 AND indexname LIKE '%~%'"
    rows = await admin.fetch(query, f"{fragment.database}.{fragment.class_name}")
    return next(str(text) for (text,) in rows if "~_deleted" not in text)


async def test_an_indexed_object_may_have_many_nulls(store: PostgresStore, admin: Any) -> None:
    n, many = (
        Field("n", FieldType.INTEGER, index=True),
        [incompressible_field(i) for i in range(100)],
    )
    small, large = (fragment_of(n, *fields, name="nulls") for fields in (many[:3], many))
    await store.prepare(small)
    assert "_nulls" in (await definition(admin, small)).partition("INCLUDE")[2]
    await put(store, small, "x", n=1, **{field.name: None for field in many[:3]})
    await store.prepare(large, small)
    assert "INCLUDE" not in await definition(admin, large)
    nulls = {field.name: None for field in many}
    await put(store, large, "y", n=2, **nulls)
    assert await get(store, large, "y") == {"n": 2, **nulls}
    assert [record.id for record in await in_order(store, large, "n", limit=3)] == ["x", "y"]
    await store.prepare(small, large)  # rows still hold the names of dropped fields
    assert "INCLUDE" not in await definition(admin, small)
    await put(store, small, "z", n=3)
    assert [record.id for record in await in_order(store, small, "n", limit=3)] == ["x", "y", "z"]
    await store.drop(small)


async def test_names_of_null_fields_are_erased_with_the_fields(
    store: PostgresStore, admin: Any
) -> None:
    many = [incompressible_field(i) for i in range(5)]
    large, small = (fragment_of(*fields, name="erased") for fields in (many, many[:2]))
    await store.prepare(large)
    for id_ in ("x", "y", "z"):
        await put(store, large, id_, **{field.name: None for field in many})
    await put(store, large, "w", **{many[0].name: 1})
    await store.prepare(small, large)
    names, after, steps = [field.name for field in many[2:]], None, 0
    while (after := await store.erase(small, names, after, 2)) is not None:
        steps += 1
    assert steps == 2
    rows = await admin.fetch(f"SELECT id, _nulls FROM {table_of(small)} ORDER BY id")
    remaining = [field.name for field in many[:2]]
    assert {row["id"]: sorted(row["_nulls"]) for row in rows} == {
        "w": [],
        **dict.fromkeys("xyz", sorted(remaining)),
    }
    await store.drop(small)


def covers(fragment: Fragment) -> bool:
    """Whether the ordered index of a class includes which of its fields are null."""
    indexes = fragment_table(fragment, NAMESPACE).table.indexes
    return any(index.dialect_options["postgresql"]["include"] for index in indexes)


MAX_LENGTH_VALUES: dict[FieldType, Any] = {
    FieldType.STRING: "".join(map(chr, random.Random(1).sample(range(0x10000, 0x10FFFF), 512))),
    FieldType.BINARY: random.Random(1).randbytes(512),
    FieldType.REFERENCE: "".join(random.Random(1).choices(ascii_letters, k=512)),
    FieldType.DECIMAL: Decimal("-9876543219876543219876543219876543E-6150"),
}


@pytest.mark.parametrize(
    ("type_", "max_length", "number"),
    [
        (FieldType.STRING, 512, 1),
        (FieldType.STRING, 100, 1),
        (FieldType.BINARY, 512, 1),
        (FieldType.REFERENCE, None, 1),
        (FieldType.STRING, 100, 4),
        (FieldType.DECIMAL, None, 4),
    ],
)
async def test_the_largest_entry_of_an_index_that_includes_nulls_fits(
    store: PostgresStore, type_: FieldType, max_length: int | None, number: int
) -> None:
    to = "x" if type_ is FieldType.REFERENCE else None
    indexed = [Field(f"v{i}", type_, max_length=max_length, to=to) for i in range(number)]
    compound = (tuple(field.name for field in indexed),)
    fields = [replace(field, index=number == 1) for field in indexed]

    def with_fields(count: int) -> Fragment:
        widened = fragment_of(*fields, *map(incompressible_field, range(count)), name="fullest")
        return replace(widened, indexes=compound if number > 1 else ())

    fragment = [candidate for candidate in map(with_fields, range(100)) if covers(candidate)][-1]
    await store.prepare(fragment)
    value = MAX_LENGTH_VALUES[type_][:max_length] if max_length else MAX_LENGTH_VALUES[type_]
    values = dict.fromkeys(fragment.fields, None) | {field.name: value for field in indexed}
    await put(store, fragment, MAX_LENGTH_VALUES[FieldType.REFERENCE], **values)
    assert await get(store, fragment, MAX_LENGTH_VALUES[FieldType.REFERENCE]) == values
    await store.drop(fragment)


async def building(admin: Any, fragment: Fragment) -> list[int]:
    """Return the sessions that build an index of a table."""
    rows = await admin.fetch(
        "SELECT pid FROM pg_stat_progress_create_index WHERE relid = $1::regclass",
        table_of(fragment),
    )
    return [pid for (pid,) in rows]


async def wait_for_build(admin: Any, fragment: Fragment) -> int:
    """Wait until an index of a table is being built; return the session that builds it."""

    async def is_building() -> bool:
        return bool(await building(admin, fragment))

    await eventually(is_building)
    return (await building(admin, fragment))[0]


@asynccontextmanager
async def open_write(config: SystemConfig, fragment: Fragment) -> AsyncIterator[None]:
    """Keep a write to a table in an open transaction, which index builds wait for."""
    other = await asyncpg.connect(config.url)
    async with other.transaction():
        await other.execute(f"UPDATE {table_of(fragment)} SET _joint = _joint WHERE id = 'x'")
        yield
    await other.close()


NAME = Field("name", FieldType.STRING, index=True)
TAGS = Field("tags", FieldType.LIST, items=FieldType.STRING, index=True)


def without_and_with_indexes() -> tuple[Fragment, Fragment]:
    """Return a fragment without its indexes, and the fragment with them."""
    after = replace(
        fragment_of(NAME, TAGS, Field("n", FieldType.INTEGER)), indexes=(("name", "n"),)
    )
    fields = {name: replace(field, index=False) for name, field in after.fields.items()}
    return replace(after, fields=fields, indexes=()), after


async def test_a_table_is_read_and_written_while_an_index_is_built(
    store: PostgresStore, admin: Any, config: SystemConfig
) -> None:
    before, after = without_and_with_indexes()
    await store.prepare(before)
    await put(store, before, "x", name="a", n=1, tags=["t"])
    async with open_write(config, before):
        preparing = asyncio.create_task(store.prepare(after, before))
        await wait_for_build(admin, after)
        await put(store, before, "y", name="a", n=2, tags=["t"])
        await put(store, before, "y", name="a", n=3, tags=["t"])
        assert await get(store, before, "y") == {"name": "a", "n": 3, "tags": ["t"]}
        assert not preparing.done()
    await preparing
    for filter_ in (Contains(("tags",), "t"), Compare(Comparison.EQ, ("name",), "a")):
        page = await store.find(SearchRequest(after, filter_, (OrderBy(("n",)),), 9))
        assert [record.id for record in page.records] == ["x", "y"]
    assert await invalid_count(admin, after) == 0
    await store.drop(after)


async def invalid_count(admin: Any, fragment: Fragment) -> int:
    """Count the indexes of a table whose builds did not end."""
    query = "SELECT count(*) FROM pg_index WHERE indrelid = $1::regclass AND NOT indisvalid"
    return int(await admin.fetchval(query, table_of(fragment)))


async def test_an_incomplete_index_is_rebuilt(
    store: PostgresStore, admin: Any, config: SystemConfig
) -> None:
    before, after = without_and_with_indexes()
    await store.prepare(before)
    await put(store, before, "x", name="a", n=1)
    async with open_write(config, before):
        preparing = asyncio.create_task(store.prepare(after, before))
        pid = await wait_for_build(admin, after)
        await admin.execute("SELECT pg_cancel_backend($1)", pid)
        with pytest.raises(StoreError):
            await preparing
    assert await invalid_count(admin, after) == 1
    await store.prepare(after, before)
    assert await invalid_count(admin, after) == 0
    (timeout,) = await store.use(lambda c: c.fetchrow("SHOW statement_timeout"))
    assert timeout == "10s"
    await store.drop(after)


async def test_replicas_build_one_after_the_other(
    store: PostgresStore, admin: Any, config: SystemConfig
) -> None:
    before, after = without_and_with_indexes()
    other = PostgresStore(config)
    await other.open()
    await store.prepare(before)
    await put(store, before, "x", name="a", n=1)
    async with open_write(config, before):
        preparing = [
            asyncio.create_task(replica.prepare(after, before)) for replica in (store, other)
        ]
        await wait_for_build(admin, after)
        assert len(await building(admin, after)) == 1
    await asyncio.gather(*preparing)
    assert await invalid_count(admin, after) == 0
    await store.drop(after)
    await other.close()


async def test_index_build_progress_is_read_from_the_server(
    store: PostgresStore, config: SystemConfig
) -> None:
    """An open transaction with a write blocks the build, so that the test sees its start."""
    before = fragment_of(Field("n", FieldType.INTEGER), name="slow")
    after = fragment_of(Field("n", FieldType.INTEGER, index=True), name="slow")
    await store.prepare(before)
    await put(store, before, "x", n=1)
    assert await store.built(after) is None
    other = await asyncpg.connect(config.url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(f"UPDATE {table_of(before)} SET id = id")
    preparing = asyncio.create_task(store.prepare(after, before))

    async def has_started() -> bool:
        return await store.built(after) == 0.0

    await eventually(has_started)
    await transaction.rollback()
    await other.close()
    await preparing
    assert await store.built(after) is None
