"""Writes and reads of records, and of the server's keys, for Redis's tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from mediator.model.operators import OperatorCall
from mediator.schema.tree import MISSING, Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    Read,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)
from mediator.stores.redis import RedisStore

Server: TypeAlias = Any
"""A client of the driver; its own types do not say what an asynchronous call returns."""

StoreOpener: TypeAlias = Callable[..., Any]
"""Opens another store, with changed settings."""

GROUPS = {"main": ("name", "price", "seen", "tags", "log", "notes"), "hits": ("hits", "score")}
FIELDS = {
    field.name: field
    for field in (
        Field("name", FieldType.STRING, index=True),
        Field("price", FieldType.DECIMAL, index=True),
        Field("seen", FieldType.TIMESTAMP, index=True),
        Field("tags", FieldType.SET, items=FieldType.STRING, max_length=3),
        Field("log", FieldType.LIST, items=FieldType.INTEGER, max_length=3),
        Field("notes", FieldType.MAP, items=FieldType.STRING, max_length=3),
        Field("hits", FieldType.INTEGER, index=True),
        Field("score", FieldType.FLOAT, index=True),
    )
}
EXAMPLES = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)

operations = (f"op{number}" for number in itertools.count())


def make_write(fragment: Fragment, id_: str, kind: WriteKind, **options: Any) -> Write:
    options.setdefault("groups", tuple(fragment.groups))
    options.setdefault("operation", next(operations))
    return Write(fragment, id_, kind, **options)


def put(fragment: Fragment, id_: str, **values: Any) -> Write:
    return make_write(fragment, id_, WriteKind.REPLACE, values=values)


def apply(fragment: Fragment, id_: str, *calls: OperatorCall, **options: Any) -> Write:
    return make_write(fragment, id_, WriteKind.UPDATE, operators=calls, **options)


async def write_one(store: RedisStore, call: Write) -> WriteResult:
    (result,) = await store.write([call])
    return result


async def value_of(store: RedisStore, fragment: Fragment, id_: str, name: str) -> Any:
    (record,) = await store.read([Read(fragment, id_)])
    assert record is not None
    return record.values.get(name, MISSING)


async def keys_of(server: Server, config: SystemConfig, pattern: str) -> list[bytes]:
    return [key async for key in server.scan_iter(f"{{{config.namespace}:*{pattern}*", count=1000)]


async def outbox(
    server: Server, config: SystemConfig, fragment: Fragment
) -> list[dict[bytes, bytes]]:
    """Return the outbox entries of a class."""
    prefix = f"db/{fragment.class_name}/".encode()
    return [
        fields
        for stream in await keys_of(server, config, "outbox")
        for _, fields in await server.xrange(stream)
        if fields[b"what"].startswith(prefix)
    ]


def with_options(config: SystemConfig, **options: str) -> str:
    """Return the server's URL with options of the driver."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{config.url}{'&' if '?' in config.url else '?'}{query}"
