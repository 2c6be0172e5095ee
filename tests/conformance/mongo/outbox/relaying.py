"""Writes of records, and the relay of their pending outbox entries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from mediator.model.change import Change
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.outbox.effect import json_encoder
from mediator.stores.port import Fragment, Read, Write, WriteKind
from tests.conformance.mongo.records import make_write

NAMESPACE = "mongo_outbox"


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


FIELDS = {
    "n": Field("n", FieldType.INTEGER),
    "f": Field("f", FieldType.FLOAT),
    "d": Field("d", FieldType.DECIMAL),
    "t": Field("t", FieldType.TIMESTAMP),
    "b": Field("b", FieldType.BINARY),
    "o": Field("o", FieldType.BOOLEAN),
    "doc": Field("doc", FieldType.DOCUMENT),
    "l": Field("l", FieldType.LIST, items=FieldType.DECIMAL, max_length=3),
    "u": Field("u", FieldType.SET, items=FieldType.TIMESTAMP, max_length=3),
    "m": Field("m", FieldType.MAP, items=FieldType.BINARY),
    "s": Field("s", FieldType.STRING, group="side"),
}


GROUPS = {"main": tuple(name for name in FIELDS if name != "s"), "side": ("s",)}


def increment(fragment: Fragment, id_: str, **options: Any) -> Write:
    call = OperatorCall("n", Operator.INC, 1)
    options = {"groups": ("main",), "operators": (call,), **options}
    return make_write(fragment, WriteKind.UPDATE, id_, **options)


async def relay(store: MongoStore, fragment: Fragment, *ids: str) -> list[Change]:
    """Read all pending outbox entries, and acknowledge them."""
    changes: list[Change] = []
    while pending := await store.pending(fragment, ids):
        assert all(record.agrees for record in pending)
        changes += [change for record in pending for change in record.changes]
        await store.acknowledge(pending)
    return changes


async def json_values(store: MongoStore, fragment: Fragment, id_: str) -> dict[str, Any] | None:
    (record,) = await store.read([Read(fragment, id_)])
    if record is None:
        return None
    encoders = {name: json_encoder(field) for name, field in FIELDS.items()}
    return {
        name: encode(value) if (encode := encoders[name]) and value is not None else value
        for name, value in record.values.items()
    }
