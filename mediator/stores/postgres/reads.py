"""Reading: by id, in the order of ids, in the order of an indexed field, and counting."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from mediator.schema.tree import MissingType
from mediator.schema.types import Value
from mediator.stores.postgres.shapes import encoded
from mediator.stores.postgres.statements import Statement, constant, number, parameter
from mediator.stores.postgres.tables import Ledgers, RecordTable, rank, sort_key

__all__ = [
    "MISSING_RANK",
    "NULL_RANK",
    "VALUE_RANK",
    "count_statement",
    "keyset",
    "ordered_statement",
    "read_statement",
    "recall_statement",
    "record_columns",
    "scan_statement",
]

MISSING_RANK, NULL_RANK, VALUE_RANK = range(3)
"""The order of what a field may hold; see `rank`."""


def record_columns(records: RecordTable, names: tuple[str, ...]) -> list[Any]:
    """Return the columns that `answers.record` reads."""
    own = [records.table.c[name] for name in ("id", "_creation_version", "_nulls")]
    columns = [*own, *records.versions.values(), *(records.columns[name] for name in names)]
    if records.fragment.joint:
        columns += [records.table.c["_intent"], records.table.c["_joint"]]
    return [column.label(f"c{i}") for i, column in enumerate(columns)]


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


def recall_statement(records: RecordTable, ledgers: Ledgers) -> Statement:
    """Find a remembered operation; `answers.recalled` reads it."""
    kept, fragment = ledgers.operations.c, records.fragment
    names = ("fingerprint", "created", "creation_version", "versions", "values", "nulls")
    return Statement(
        sa.select(*(kept[name] for name in names)).where(
            kept["operation"] == parameter("operation", sa.Text()),
            kept["database"] == constant(fragment.database),
            kept["class"] == constant(fragment.stored_as),
            kept["object"] == parameter("id", sa.Text()),
        )
    )


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
