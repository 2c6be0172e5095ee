"""Tables of PostgreSQL that change with their classes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Read,
    StoreRefused,
    SystemConfig,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from tests.conformance.in_order import in_order
from tests.conformance.postgres.records import NAMESPACE, fragment_of, get, one, put, write


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
