"""Writes and reads of records, the outbox and tables, for PostgreSQL's tests."""

from __future__ import annotations

import uuid
from typing import Any

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.stores.port import (
    Fragment,
    Read,
    Write,
    WriteKind,
    WriteResult,
)
from mediator.stores.postgres import PostgresStore

NAMESPACE = f"portolan_test_{uuid.uuid4().hex[:12]}"


ADD = OperatorCall("n", Operator.INC, 1)


def fragment_of(*fields: Field, name: str = "") -> Fragment:
    groups: dict[str, tuple[str, ...]] = {"main": ()}
    for field in fields:
        group = field.group or "main"
        groups[group] = (*groups.get(group, ()), field.name)
    class_name = name or f"c{uuid.uuid4().hex[:12]}"
    return Fragment("postgres", "d", class_name, {f.name: f for f in fields}, groups)


def make_write(fragment: Fragment, id_: str, kind: WriteKind, **options: Any) -> Write:
    operation, groups = options.pop("operation", uuid.uuid4().hex), options.pop("groups", None)
    all_groups = tuple(fragment.groups)
    written_groups = groups or (("main",) if kind is WriteKind.UPDATE else all_groups)
    return Write(fragment, id_, kind, operation, written_groups, **options)


async def write_one(store: PostgresStore, call: Write) -> WriteResult:
    return (await store.write([call]))[0]


async def put(store: PostgresStore, fragment: Fragment, id_: str, **values: Any) -> WriteResult:
    return await write_one(store, make_write(fragment, id_, WriteKind.REPLACE, values=values))


async def get(store: PostgresStore, fragment: Fragment, id_: str) -> Any:
    record = (await store.read([Read(fragment, id_)]))[0]
    return None if record is None else dict(record.values)


async def outbox(admin: Any, fragment: Fragment) -> list[Any]:
    rows: list[Any] = await admin.fetch(
        f'SELECT * FROM "{NAMESPACE}"._outbox WHERE class = $1 ORDER BY xid, seq',
        fragment.class_name,
    )
    return rows


def table_of(fragment: Fragment) -> str:
    return f'"{NAMESPACE}"."{fragment.database}.{fragment.class_name}"'
