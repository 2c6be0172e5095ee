"""Statements that read records by id, in an order, or count them; and readers of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from mediator.schema.tree import MissingType
from mediator.schema.types import Value, Values
from mediator.stores.port import Record
from mediator.stores.postgres.codec import encoded
from mediator.stores.postgres.layout import RecordTable, rank, sort_key
from mediator.stores.postgres.sql import Statement, number, parameter

__all__ = [
    "MISSING_RANK",
    "NULL_RANK",
    "VALUE_RANK",
    "RecordReader",
    "are_large",
    "count_statement",
    "keyset",
    "ordered_statement",
    "read_statement",
    "reader",
    "record_columns",
    "scan_statement",
]

MISSING_RANK, NULL_RANK, VALUE_RANK = range(3)
"""The order of what a field may hold; see `rank`."""

RecordReader: TypeAlias = Callable[[Any], Record]

_LARGE: Final = 20_000
"""Characters of texts and items of lists, together."""


def record_columns(records: RecordTable, names: tuple[str, ...]) -> list[Any]:
    """Return the columns that `reader` reads."""
    own = [records.table.c[name] for name in ("id", "_creation_version", "_nulls")]
    columns = [*own, *records.versions.values(), *(records.columns[name] for name in names)]
    if records.fragment.joint:
        columns += [records.table.c["_intent"], records.table.c["_joint"]]
    return [column.label(f"c{i}") for i, column in enumerate(columns)]


def reader(records: RecordTable, names: tuple[str, ...]) -> RecordReader:
    """Return what reads records out of rows."""
    groups = tuple(records.versions)
    first, end = 3 + len(groups), 3 + len(groups) + len(names)
    codecs = [(name, records.codecs[name].decode) for name in names]
    decoders = [(name, decode) for name, decode in codecs if decode is not None]
    joint = records.fragment.joint
    only = groups[0] if len(groups) == 1 else None

    def read(row: Any) -> Record:
        values: Values = dict(zip(names, row[first:end], strict=True))
        if None in values.values():
            nulls = row[2]
            values = {n: v for n, v in values.items() if v is not None or n in nulls}
        for name, decode in decoders:
            if (value := values.get(name)) is not None:
                values[name] = decode(value)
        # Pages have thousands of records, most of one group.
        versions = {only: row[3]} if only else dict(zip(groups, row[3:first], strict=True))
        if not joint:
            return Record(row[0], row[1], versions, values)
        return Record(row[0], row[1], versions, values, row[end] or "", row[end + 1] or "")

    return read


def are_large(rows: Iterable[Any]) -> bool:
    """Whether it takes more than about a millisecond to read rows: texts may be JSON."""
    size = 0
    for row in rows:
        for value in row:
            if isinstance(value, str | list):
                size += len(value)
    return size > _LARGE


def read_statement(records: RecordTable, names: tuple[str, ...], *, many: bool) -> Statement:
    """Read the record with one id, or the records with some ids, in any order."""
    ids = parameter("ids", ARRAY(sa.Text())) if many else parameter("id", sa.Text())
    chosen = records.id == (sa.any_(ids) if many else ids)
    return Statement(sa.select(*record_columns(records, names)).where(chosen, records.live))


def scan_statement(records: RecordTable, names: tuple[str, ...], *, after: bool) -> Statement:
    """Read records in the order of their ids."""
    query = sa.select(*record_columns(records, names)).where(records.live)
    if after:
        query = query.where(records.id > parameter("after", sa.Text()))
    return Statement(query.order_by(records.id).limit(parameter("limit", sa.BigInteger())))


def count_statement(records: RecordTable) -> Statement:
    """Count records."""
    return Statement(sa.select(sa.func.count()).select_from(records.table).where(records.live))


def keyset(records: RecordTable, name: str, after: tuple[Value | MissingType, str] | None) -> Any:
    """Return the rank that a position has, and its parameters."""
    if after is None:
        return None, {}
    value, id_ = after
    if isinstance(value, MissingType):
        return MISSING_RANK, {"after": id_}
    if value is None:
        return NULL_RANK, {"after": id_}
    return VALUE_RANK, {"after": id_, "value": encoded(records.codecs[name], value)}


def ordered_statement(
    records: RecordTable,
    field_name: str,
    names: tuple[str, ...],
    *,
    descending: bool,
    after: int | None,
    condition: sa.ColumnElement[bool] | None = None,
) -> Statement:
    """Read records in the order (rank, value, id), each rank as a range of the index.

    One condition over all ranks could not use the index, because a row comparison with a null is
    unknown. So each rank is a query of its own, limited by itself; only their results are merged.

    Args:
        records: The table.
        field_name: The field that orders; it is indexed.
        names: Fields to read.
        descending: Whether the order is reversed, ids included.
        after: Rank of the position beyond which to read (parameters `value`, `after`).
        condition: What else the records must meet.
    """
    ranks = [r for r in range(3) if after is None or (r <= after if descending else r >= after)]
    parts = [
        _segment(records, field_name, names, rank_, descending=descending, beyond=rank_ == after)
        for rank_ in ranks
    ]
    if condition is not None:
        parts = [part.where(condition) for part in parts]
    if len(parts) == 1:
        return Statement(parts[0])
    union = sa.union_all(*(part.subquery().select() for part in parts)).subquery()
    width = len(record_columns(records, names))
    answer = [union.c[f"c{i}"] for i in range(width)]
    keys = [union.c["k0"], union.c["k1"], union.c["k2"]]
    query = sa.select(*answer).order_by(*_directed(keys, descending))
    return Statement(query.limit(parameter("limit", sa.BigInteger())))


def _directed(keys: list[Any], descending: bool) -> list[Any]:
    return [key.desc().nulls_first() if descending else key for key in keys]


def _segment(
    records: RecordTable,
    field_name: str,
    names: tuple[str, ...],
    rank_: int,
    *,
    descending: bool,
    beyond: bool,
) -> sa.Select[Any]:
    column = records.columns[field_name]
    ranked = rank(records.table, field_name, column)
    prefix = sort_key(records.fragment.fields[field_name], column)
    keys = [column, records.id] if prefix is column else [prefix, column, records.id]
    whole = [ranked.label("k0"), column.label("k1"), records.id.label("k2")]
    query = sa.select(*record_columns(records, names), *whole)
    query = query.where(records.live, ranked == number(rank_))
    if rank_ != VALUE_RANK:
        query = query.where(column.is_(None))  # leads the index past the column, on to the id
    if beyond:
        query = query.where(_beyond(records, field_name, rank_, descending=descending))
    query = query.order_by(*_directed([ranked, *keys], descending))
    return query.limit(parameter("limit", sa.BigInteger()))


def _beyond(records: RecordTable, field_name: str, rank_: int, *, descending: bool) -> Any:
    column, field = records.columns[field_name], records.fragment.fields[field_name]
    id_ = parameter("after", sa.Text())
    here: list[Any] = [records.id]
    there: list[Any] = [id_]
    if rank_ == VALUE_RANK:
        value = parameter("value", column.type)
        here, there = [column, *here], [value, *there]
        prefix = sort_key(field, column)
        if prefix is not column:
            here, there = [prefix, *here], [sort_key(field, value), *there]
    left, right = sa.tuple_(*here), sa.tuple_(*there)
    return left < right if descending else left > right
