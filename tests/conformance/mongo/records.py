"""Writes and reads of records, and of stored documents, for MongoDB's tests."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import layout_of
from mediator.stores.port import (
    Fragment,
    Read,
    Store,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)

NAMESPACE = f"mongo_test_{uuid.uuid4().hex[:8]}"


@dataclass
class SkewedClock:
    """A clock set by hand."""

    seconds: float

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


FIELDS = {
    "n": Field("n", FieldType.INTEGER, index=True),
    "f": Field("f", FieldType.FLOAT, index=True),
    "d": Field("d", FieldType.DECIMAL, index=True),
    "t": Field("t", FieldType.TIMESTAMP),
    "b": Field("b", FieldType.BINARY, index=True),
    "s": Field("s", FieldType.STRING, index=True, group="side"),
    "doc": Field("doc", FieldType.DOCUMENT),
    "l": Field("l", FieldType.LIST, items=FieldType.INTEGER, max_length=3),
    "u": Field("u", FieldType.SET, items=FieldType.STRING, max_length=3),
    "m": Field("m", FieldType.MAP, items=FieldType.INTEGER),
}


@asynccontextmanager
async def opened(config: SystemConfig, clock: Any = None) -> AsyncIterator[MongoStore]:
    store = MongoStore(config, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def make_write(fragment: Fragment, kind: WriteKind, id_: str = "x", **options: Any) -> Write:
    operation = options.pop("operation", uuid.uuid4().hex)
    groups = options.pop("groups", ("main", "side"))
    return Write(fragment, id_, kind, operation, groups, **options)


def increment(fragment: Fragment, id_: str = "x", **options: Any) -> Write:
    call = OperatorCall("n", Operator.INC, 1)
    return make_write(
        fragment, WriteKind.UPDATE, id_, operators=(call,), returning=("n",), **options
    )


async def put(store: Store, fragment: Fragment, id_: str = "x", **values: Any) -> WriteResult:
    return await write_one(store, make_write(fragment, WriteKind.REPLACE, id_, values=values))


async def write_one(store: Store, write: Write) -> WriteResult:
    (result,) = await store.write([write])
    return result


async def read_values(store: Store, fragment: Fragment, id_: str = "x") -> dict[str, Any]:
    (record,) = await store.read([Read(fragment, id_)])
    assert record is not None
    return dict(record.values)


async def raw_document(store: MongoStore, fragment: Fragment, id_: str = "x") -> dict[str, Any]:
    collection = store.link.session.collection(layout_of(fragment))
    document = await collection.find_one({"_id": id_})
    assert document is not None
    return document
