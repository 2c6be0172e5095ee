"""Tables of PostgreSQL that change with their classes."""

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
    one,
    put,
    table_of,
    write,
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
    await one(store, write(large, "x", WriteKind.UPDATE, values=values, groups=("side",)))
    await put(store, large, "y", s=None)
    await store.prepare(large)
    assert await get(store, large, "x") == {"n": 1, "s": "earlier"}
    await store.prepare(small, large)
    assert await get(store, small, "x") == {"n": 1}
    again = replace(large, schema_version=4)
    await store.prepare(again, small)
    assert [await get(store, again, id_) for id_ in "xy"] == [{"n": 1}, {}]
    await put(store, again, "x", s="now")
    await store.prepare(replace(again), small)  # another replica, with what it had seen
    assert await get(store, again, "x") == {"s": "now"}
    await store.drop(again)


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
    long = ["a" * 5_000, "a" * 5_000 + "b", "a" * 400, "é" * 3_000]
    for i, text in enumerate(long):
        await put(store, indexed, str(i), s=text)
    options: dict[str, Any] = {"descending": True, "limit": 2}
    top = await in_order(store, indexed, "s", **options)
    assert [record.id for record in top] == ["3", "1"]
    rest = await in_order(store, indexed, "s", after=(top[-1].values["s"], "1"), **options)
    assert [record.id for record in rest] == ["0", "2"]
    await store.prepare(plain, indexed)
    assert await admin.fetchval(count) == before
    await store.drop(plain)


def named(number: int) -> Field:
    """Return a field whose name is not like the others', so that they are not compressed."""
    return Field(f"f{sha256(str(number).encode()).hexdigest()[:39]}", FieldType.INTEGER)


async def definition(admin: Any, fragment: Fragment) -> str:
    """Return the definition of the one index that a class has."""
    query = "SELECT indexdef FROM pg_indexes WHERE tablename = $1 AND indexname LIKE '%~%'"
    rows = await admin.fetch(query, f"{fragment.database}.{fragment.class_name}")
    return next(str(each) for (each,) in rows if "~_deleted" not in each)


async def test_an_indexed_object_may_have_many_nulls(store: PostgresStore, admin: Any) -> None:
    n, many = Field("n", FieldType.INTEGER, index=True), [named(i) for i in range(100)]
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
    await store.prepare(small, large)  # rows have the names of fields that are gone
    assert "INCLUDE" not in await definition(admin, small)
    await put(store, small, "z", n=3)
    assert [record.id for record in await in_order(store, small, "n", limit=3)] == ["x", "y", "z"]
    await store.drop(small)


async def test_the_names_of_nulls_go_with_their_fields(store: PostgresStore, admin: Any) -> None:
    many = [named(i) for i in range(5)]
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
    left = await admin.fetch(f"SELECT id, _nulls FROM {table_of(small)} ORDER BY id")
    both = [field.name for field in many[:2]]
    assert {row["id"]: sorted(row["_nulls"]) for row in left} == {
        "w": [],
        **dict.fromkeys("xyz", sorted(both)),
    }
    await store.drop(small)


def covers(fragment: Fragment) -> bool:
    """Whether the ordered index of a class includes which of its fields are null."""
    indexes = fragment_table(fragment, NAMESPACE).table.indexes
    return any(index.dialect_options["postgresql"]["include"] for index in indexes)


LONGEST: dict[FieldType, Any] = {
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

    def with_more(more: int) -> Fragment:
        made = fragment_of(*fields, *map(named, range(more)), name="fullest")
        return replace(made, indexes=compound if number > 1 else ())

    fragment = [made for made in map(with_more, range(100)) if covers(made)][-1]
    await store.prepare(fragment)
    value = LONGEST[type_][:max_length] if max_length else LONGEST[type_]
    values = dict.fromkeys(fragment.fields, None) | {field.name: value for field in indexed}
    await put(store, fragment, LONGEST[FieldType.REFERENCE], **values)
    assert await get(store, fragment, LONGEST[FieldType.REFERENCE]) == values
    await store.drop(fragment)


async def building(admin: Any, fragment: Fragment) -> list[int]:
    """Return the sessions that build an index of a table."""
    rows = await admin.fetch(
        "SELECT pid FROM pg_stat_progress_create_index WHERE relid = $1::regclass",
        table_of(fragment),
    )
    return [pid for (pid,) in rows]


async def begun(admin: Any, fragment: Fragment) -> int:
    """Wait until an index of a table is built; return the session that does it."""

    async def is_built() -> bool:
        return bool(await building(admin, fragment))

    await eventually(is_built)
    return (await building(admin, fragment))[0]


@asynccontextmanager
async def held(config: SystemConfig, fragment: Fragment) -> AsyncIterator[None]:
    """Write to a table in a transaction that is open for a while: an index has to wait for it."""
    other = await asyncpg.connect(config.url)
    async with other.transaction():
        await other.execute(f"UPDATE {table_of(fragment)} SET _joint = _joint WHERE id = 'x'")
        yield
    await other.close()


NAME = Field("name", FieldType.STRING, index=True)
TAGS = Field("tags", FieldType.LIST, items=FieldType.STRING, index=True)


def indexed_late() -> tuple[Fragment, Fragment]:
    """Return a fragment without its indexes, and with them."""
    after = replace(
        fragment_of(NAME, TAGS, Field("n", FieldType.INTEGER)), indexes=(("name", "n"),)
    )
    fields = {name: replace(field, index=False) for name, field in after.fields.items()}
    return replace(after, fields=fields, indexes=()), after


async def test_a_table_is_read_and_written_while_an_index_is_built(
    store: PostgresStore, admin: Any, config: SystemConfig
) -> None:
    before, after = indexed_late()
    await store.prepare(before)
    await put(store, before, "x", name="a", n=1, tags=["t"])
    async with held(config, before):
        preparing = asyncio.create_task(store.prepare(after, before))
        await begun(admin, after)
        await put(store, before, "y", name="a", n=2, tags=["t"])
        await put(store, before, "y", name="a", n=3, tags=["t"])
        assert await get(store, before, "y") == {"name": "a", "n": 3, "tags": ["t"]}
        assert not preparing.done()
    await preparing
    for filter_ in (Contains(("tags",), "t"), Compare(Comparison.EQ, ("name",), "a")):
        page = await store.find(SearchRequest(after, filter_, (OrderBy(("n",)),), 9))
        assert [record.id for record in page.records] == ["x", "y"]
    assert await invalid(admin, after) == 0
    await store.drop(after)


async def invalid(admin: Any, fragment: Fragment) -> int:
    """Count the indexes of a table that were not built to their end."""
    query = "SELECT count(*) FROM pg_index WHERE indrelid = $1::regclass AND NOT indisvalid"
    return int(await admin.fetchval(query, table_of(fragment)))


async def test_an_index_that_was_not_built_to_its_end_is_built_again(
    store: PostgresStore, admin: Any, config: SystemConfig
) -> None:
    before, after = indexed_late()
    await store.prepare(before)
    await put(store, before, "x", name="a", n=1)
    async with held(config, before):
        preparing = asyncio.create_task(store.prepare(after, before))
        pid = await begun(admin, after)
        await admin.execute("SELECT pg_cancel_backend($1)", pid)
        with pytest.raises(StoreError):
            await preparing
    assert await invalid(admin, after) == 1
    await store.prepare(after, before)
    assert await invalid(admin, after) == 0
    (timeout,) = await store.use(lambda c: c.fetchrow("SHOW statement_timeout"))
    assert timeout == "10s"
    await store.drop(after)


async def test_replicas_build_one_after_the_other(
    store: PostgresStore, admin: Any, config: SystemConfig
) -> None:
    before, after = indexed_late()
    other = PostgresStore(config)
    await other.open()
    await store.prepare(before)
    await put(store, before, "x", name="a", n=1)
    async with held(config, before):
        both = [asyncio.create_task(each.prepare(after, before)) for each in (store, other)]
        await begun(admin, after)
        assert len(await building(admin, after)) == 1
    await asyncio.gather(*both)
    assert await invalid(admin, after) == 0
    await store.drop(after)
    await other.close()


async def test_what_is_built_of_an_index_is_read_from_the_server(
    store: PostgresStore, config: SystemConfig
) -> None:
    """A transaction that has written holds up the build, so that it is seen at its beginning."""
    before = fragment_of(Field("n", FieldType.INTEGER), name="slow")
    after = fragment_of(Field("n", FieldType.INTEGER, index=True), name="slow")
    await store.prepare(before)
    await put(store, before, "x", n=1)
    assert await store.built(after) is None
    other = await asyncpg.connect(config.url)
    writing = other.transaction()
    await writing.start()
    await other.execute(f"UPDATE {table_of(before)} SET id = id")
    building = asyncio.create_task(store.prepare(after, before))

    async def begun() -> bool:
        return await store.built(after) == 0.0

    await eventually(begun)
    await writing.rollback()
    await other.close()
    await building
    assert await store.built(after) is None
