"""Statements that read records by id or count them, and readers of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from mediator.schema.types import Values
from mediator.stores.port import Record
from mediator.stores.postgres.layout import RecordTable
from mediator.stores.postgres.sql import Statement, parameter

__all__ = [
    "MISSING_RANK",
    "NULL_RANK",
    "VALUE_RANK",
    "RecordReader",
    "are_large",
    "count_statement",
    "read_statement",
    "reader",
    "record_columns",
    "scan_statement",
    "size_of",
]

MISSING_RANK, NULL_RANK, VALUE_RANK = range(3)
"""The order of missing fields, nulls and values; see `rank`."""

RecordReader: TypeAlias = Callable[[Any], Record]

_LARGE: Final = 20_000
_ITEM_SIZE: Final = 8
"""Bytes counted for an item of a list that is no text."""


def record_columns(records: RecordTable, names: tuple[str, ...]) -> list[Any]:
    """Return the columns that `reader` reads."""
    head = [records.table.c[name] for name in ("id", "_creation_version", "_nulls")]
    columns = [*head, *records.versions.values(), *(records.columns[name] for name in names)]
    if records.fragment.joint:
        columns += [records.table.c["_intent"], records.table.c["_joint"]]
    return [column.label(f"c{i}") for i, column in enumerate(columns)]


def reader(records: RecordTable, names: tuple[str, ...]) -> RecordReader:
    groups = tuple(records.versions)
    first, end = 3 + len(groups), 3 + len(groups) + len(names)
    codecs = [(name, records.codecs[name].decode) for name in names]
    decoders = [(name, decode) for name, decode in codecs if decode is not None]
    joint = records.fragment.joint
    single_group = groups[0] if len(groups) == 1 else None

    def read(row: Any) -> Record:
        values: Values = dict(zip(names, row[first:end], strict=True))
        if None in values.values():
            nulls = row[2]
            values = {n: v for n, v in values.items() if v is not None or n in nulls}
        for name, decode in decoders:
            if (value := values.get(name)) is not None:
                values[name] = decode(value)
        # Pages have thousands of records, most of one group.
        versions = (
            {single_group: row[3]} if single_group else dict(zip(groups, row[3:first], strict=True))
        )
        if not joint:
            return Record(row[0], row[1], versions, values)
        return Record(row[0], row[1], versions, values, row[end] or "", row[end + 1] or "")

    return read


def are_large(rows: Iterable[Any]) -> bool:
    """Whether decoding rows takes more than about a millisecond: texts can be JSON."""
    return size_of(rows) > _LARGE


def size_of(rows: Iterable[Any]) -> int:
    """Return the total length of the texts in rows, plus a little for items of lists."""
    size = 0
    for row in rows:
        for value in row:
            if isinstance(value, str | bytes):
                size += len(value)
            elif isinstance(value, list):
                size += sum(len(v) if isinstance(v, str | bytes) else _ITEM_SIZE for v in value)
    return size


def read_statement(records: RecordTable, names: tuple[str, ...], *, many: bool) -> Statement:
    """Read the record with one id, or the records with some ids, in any order."""
    ids = parameter("ids", ARRAY(sa.Text())) if many else parameter("id", sa.Text())
    matches = records.id == (sa.any_(ids) if many else ids)
    return Statement(sa.select(*record_columns(records, names)).where(matches, records.live))


def scan_statement(records: RecordTable, names: tuple[str, ...], *, after: bool) -> Statement:
    """Read records in the order of their ids."""
    query = sa.select(*record_columns(records, names)).where(records.live)
    if after:
        query = query.where(records.id > parameter("after", sa.Text()))
    return Statement(query.order_by(records.id).limit(parameter("limit", sa.BigInteger())))


def count_statement(records: RecordTable) -> Statement:
    """Count all rows minus the tombstones: no row is tested, and tombstones have an index."""
    rows = sa.select(sa.func.count()).select_from(records.table)
    tombstones = rows.where(records.table.c["_deleted"].is_not(None))
    return Statement(sa.select(rows.scalar_subquery() - tombstones.scalar_subquery()))
