"""Statement parts that insert a write's outbox rows and its remembered operation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from mediator.stores.port import WriteKind
from mediator.stores.postgres.codec import json_form
from mediator.stores.postgres.layout import NULLS, NamespaceTables, RecordTable
from mediator.stores.postgres.sql import constant, json_object, parameter
from mediator.stores.postgres.write.shape import WriteShape

__all__ = ["StatementParts", "insert_changes", "insert_operation"]


class StatementParts(Protocol):
    """The parts of a write statement that its entries are made of."""

    shape: WriteShape
    records: RecordTable
    namespace_tables: NamespaceTables
    id: sa.BindParameter[Any]
    old: sa.CTE
    new: sa.CTE
    at: Any
    was_live: Any


def insert_changes(parts: StatementParts, source: Any) -> Any:
    """Insert one outbox row for each group written; the change id is `operation:group`."""
    rows = [_change(parts, source, group) for group in parts.shape.groups]
    names = [name for name in parts.namespace_tables.outbox.c.keys() if name not in ("xid", "seq")]  # noqa: SIM118 - a column collection iterates over columns
    return insert(parts.namespace_tables.outbox).from_select(
        names, rows[0] if len(rows) == 1 else sa.union_all(*rows)
    )


def _change(parts: StatementParts, source: Any, group: str) -> sa.Select[Any]:
    shape, old, new = parts.shape, parts.old.c, parts.new.c
    members = set(shape.fragment.groups[group])
    touched = [name for name in shape.touched if name in members]
    before, before_nulls = _fields(parts, old, touched), _nulls(old)
    after, after_nulls = _fields(parts, new, touched), _nulls(new)
    if shape.whole:
        before, before_nulls = (sa.case((parts.was_live, x)) for x in (before, before_nulls))
    if shape.kind is WriteKind.DELETE:
        after, after_nulls = sa.cast(sa.null(), JSONB), sa.cast(sa.null(), NULLS)
    columns = (
        parameter("operation", sa.Text()).op("||", return_type=sa.Text())(constant(f":{group}")),
        constant(shape.fragment.database_id),
        constant(shape.fragment.class_name),
        parts.id,
        constant(group),
        new[parts.records.versions[group].name],
        constant(shape.kind.name.lower()),
        before,
        before_nulls,
        after,
        after_nulls,
        parts.at,
    )
    return _row(columns).select_from(source)


def insert_operation(parts: StatementParts, source: Any) -> Any:
    """Insert the operation with its result, so that a retry returns the same."""
    shape, new, records = parts.shape, parts.new.c, parts.records
    versions = {group: new[column.name] for group, column in records.versions.items()}
    latest = sa.func.greatest(*versions.values(), type_=sa.BigInteger())
    columns = (
        parameter("operation", sa.Text()),
        constant(shape.fragment.database),
        constant(shape.fragment.stored_as),
        parts.id,
        parameter("fingerprint", sa.Text()),
        sa.not_(parts.was_live) if shape.whole else sa.false(),
        latest if shape.kind is WriteKind.DELETE else new["_creation_version"],
        json_object(versions.items()),
        _fields(parts, new, shape.returning or ()),
        new["_nulls"],
        parts.at,
    )
    table = parts.namespace_tables.operations
    return insert(table).from_select(list(table.c.keys()), _row(columns).select_from(source))


def _fields(parts: StatementParts, row: Any, names: Iterable[str]) -> Any:
    fields, columns = parts.shape.fragment.fields, parts.records.columns
    return json_object((name, json_form(fields[name], row[columns[name].name])) for name in names)


def _nulls(row: Any) -> Any:
    return row["_nulls"]


def _row(columns: Iterable[Any]) -> sa.Select[Any]:
    return sa.select(*(column.label(f"o{i}") for i, column in enumerate(columns)))
