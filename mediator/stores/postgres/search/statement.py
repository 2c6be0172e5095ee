"""Statements of searches: records that match a condition, in any order, with keyset pagination.

A page begins beyond a position: the values of the order's fields, and the id. Which of them are
missing or null belongs to a search's shape, because comparisons with NULL are unknown in SQL.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from mediator.model.filters import ID
from mediator.model.query import OrderBy, Position
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import SCALARS, Value
from mediator.stores.port import Fragment, Record
from mediator.stores.port.search import field_at
from mediator.stores.postgres.layout import RecordTable, TableOf, indexed_lengths, sort_key
from mediator.stores.postgres.read.statements import (
    MISSING_RANK,
    NULL_RANK,
    VALUE_RANK,
    record_columns,
)
from mediator.stores.postgres.search.conditions import column_of, condition, rank_of
from mediator.stores.postgres.search.joins import (
    DocumentShape,
    SemiJoinShape,
    conditions_of,
    documents_of,
)
from mediator.stores.postgres.search.predicates import FilterShape
from mediator.stores.postgres.sql import Statement, number, parameter

__all__ = [
    "OrderLevel",
    "SearchShape",
    "estimate_statement",
    "levels",
    "position",
    "position_values",
    "ranks",
    "search_statement",
]

Expression: TypeAlias = sa.ColumnElement[Any]


class OrderLevel(NamedTuple):
    """One field of an order, ``id`` for the id."""

    field: str
    descending: bool


class SearchShape(NamedTuple):
    """The shape of a search.

    Attributes:
        fragment: The fragment that is searched.
        shape: The shape of the filter.
        levels: The order; the id is its last level.
        ranks: The rank of the position at each level but the last; None: from the start.
        names: Fields to read, including those of the order.
        semi_joins: The semi-joins of the records.
        document: The rows of documents; None: rows of records.
    """

    fragment: Fragment
    shape: FilterShape
    levels: tuple[OrderLevel, ...]
    ranks: tuple[int, ...] | None
    names: tuple[str, ...]
    semi_joins: tuple[SemiJoinShape, ...] = ()
    document: DocumentShape | None = None


def levels(fragment: Fragment, order: Sequence[OrderBy]) -> tuple[OrderLevel, ...] | None:
    """Return the levels of an order; None if it is by a value within a field."""
    result: list[OrderLevel] = []
    for level in order:
        field = field_at(fragment, level.path)
        if field is None or field.type not in SCALARS:
            return None
        result.append(OrderLevel(field.name, level.descending))
        if level.path == ID:
            return tuple(result)
    return (*result, OrderLevel(ID[0], bool(result) and result[-1].descending))


def ranks(after: Position | None) -> tuple[int, ...] | None:
    """Return the ranks (missing, null or value) of a position's values."""
    return None if after is None else tuple(map(_rank, after.values))


def _rank(value: Value | MissingType) -> int:
    if isinstance(value, MissingType):
        return MISSING_RANK
    return NULL_RANK if value is None else VALUE_RANK


def position_values(after: Position | None, search: SearchShape) -> dict[str, Any]:
    """Return the values of a position by the parameter names of its search's statement."""
    if after is None:
        return {}
    fields = zip(search.levels[:-1], after.values, strict=False)
    return {"after": after.id, **{f"k{i}": value for i, (_, value) in enumerate(fields)}}


def position(record: Record, search: SearchShape) -> Position:
    """Return the position of a record in the order of a search."""
    values = (record.values.get(level.field, MISSING) for level in search.levels[:-1])
    return Position(tuple(values), record.id)


def search_statement(records: RecordTable, search: SearchShape, tables: TableOf) -> Statement:
    """Read the records of a search (parameters: its constants, its position, `limit`)."""
    matches = sa.and_(
        condition(records, search.shape), *conditions_of(records, search.semi_joins, tables)
    )
    if search.document is None and _by_segments(search):
        return Statement(_segmented(records, search, matches))
    query = _selected(records, search, tables).where(records.live, matches)
    if search.ranks is not None:
        query = query.where(_beyond(records, search.levels, search.ranks))
    query = query.order_by(*_order(records, search.levels))
    return Statement(query.limit(parameter("limit", sa.BigInteger())))


def estimate_statement(records: RecordTable, shape: FilterShape) -> Statement:
    """Select the matches of a filter (parameters: its constants), only to be explained.

    The conditions are those without an index: the planner has no statistics on the expressions of
    a partial index, and assumes one row in 200 for each rank.
    """
    fields = records.fragment.fields.items()
    unindexed = {name: replace(field, index=False) for name, field in fields}
    plain = replace(records.fragment, fields=unindexed, indexes=())
    records = replace(records, fragment=plain)
    return Statement(sa.select(records.id).where(records.live, condition(records, shape)))


def _selected(records: RecordTable, search: SearchShape, tables: TableOf) -> sa.Select[Any]:
    if search.document is None:
        return sa.select(*record_columns(records, search.names))
    return documents_of(records, search.document, tables)


def _by_segments(search: SearchShape) -> bool:
    """Whether only segments let the index seek to a position among nulls or missing values."""
    first, last = search.levels[0], search.levels[-1]
    if len(search.levels) != 2 or first.descending is not last.descending:  # noqa: PLR2004 - a field and the id
        return False
    is_null_or_missing = search.ranks is not None and search.ranks[0] != VALUE_RANK
    return is_null_or_missing and search.fragment.fields[first.field].index


def _segmented(records: RecordTable, search: SearchShape, matches: Expression) -> sa.Select[Any]:
    """Read records in the order (rank, value, id), each rank as a range of the index.

    One condition over all ranks could not use the index, because a row comparison with a null is
    unknown. So each rank is a separate query with its own limit; only the results are merged.
    """
    descending, after = search.levels[0].descending, (search.ranks or (VALUE_RANK,))[0]
    segment_ranks = [r for r in range(3) if (r <= after if descending else r >= after)]
    segments = [
        _segment(records, search, r, beyond=r == after).where(matches) for r in segment_ranks
    ]
    if len(segments) == 1:
        return segments[0]
    union = sa.union_all(*(segment.subquery().select() for segment in segments)).subquery()
    width = len(record_columns(records, search.names))
    keys = _directed([union.c[f"k{i}"] for i in range(3)], descending)
    query = sa.select(*(union.c[f"c{i}"] for i in range(width))).order_by(*keys)
    return query.limit(parameter("limit", sa.BigInteger()))


def _segment(
    records: RecordTable, search: SearchShape, rank_: int, *, beyond: bool
) -> sa.Select[Any]:
    level = search.levels[0]
    column, rank_column = records.columns[level.field], rank_of(records, level.field)
    sort_columns = [rank_column.label("k0"), column.label("k1"), records.id.label("k2")]
    query = sa.select(*record_columns(records, search.names), *sort_columns)
    query = query.where(records.live, rank_column == number(rank_))
    if rank_ != VALUE_RANK:
        query = query.where(column.is_(None))  # lets the index seek by the id, after the column
    if beyond:
        id_ = parameter("after", sa.Text())
        query = query.where(records.id < id_ if level.descending else records.id > id_)
    return query.order_by(*_order(records, search.levels)).limit(
        parameter("limit", sa.BigInteger())
    )


def _keys(records: RecordTable, level: OrderLevel) -> list[Expression]:
    """Return the sort keys of a level after the rank, the same expressions as in its index."""
    column, field = column_of(records, level.field), records.fragment.fields.get(level.field)
    lengths = [] if field is None else indexed_lengths(records.fragment, field)
    if field is None or not lengths:
        return [column]
    key = sort_key(field, column, lengths[0])
    return [column] if key is column else [key, column]


def _order(records: RecordTable, order: tuple[OrderLevel, ...]) -> Iterator[Expression]:
    for level in order:
        rank_ = [] if level.field == ID[0] else [rank_of(records, level.field)]
        yield from _directed([*rank_, *_keys(records, level)], level.descending)


def _directed(keys: list[Expression], descending: bool) -> list[Expression]:
    return [key.desc().nulls_first() for key in keys] if descending else keys


def _beyond(
    records: RecordTable, order: tuple[OrderLevel, ...], position_ranks: tuple[int, ...]
) -> Expression:
    columns: list[Expression] = []
    bounds: list[Expression] = []
    descends: list[bool] = []
    for i, level in enumerate(order):
        keys, values = _steps(records, level, i, position_ranks)
        columns, bounds = [*columns, *keys], [*bounds, *values]
        descends += [level.descending] * len(keys)
    if len(set(descends)) == 1:
        compare = operator.lt if descends[0] else operator.gt
        comparison: Expression = compare(sa.tuple_(*columns), sa.tuple_(*bounds))
        return comparison
    return _lexicographic(columns, bounds, descends)


def _steps(
    records: RecordTable, level: OrderLevel, number_: int, position_ranks: tuple[int, ...]
) -> tuple[list[Expression], list[Expression]]:
    """Return the two sides of a level's comparison; nulls are compared only by rank."""
    if level.field == ID[0]:
        return [records.id], [parameter("after", sa.Text())]
    position_rank, rank_column = position_ranks[number_], rank_of(records, level.field)
    if position_rank != VALUE_RANK:
        return [rank_column], [number(position_rank)]
    keys = _keys(records, level)
    value = parameter(f"k{number_}", keys[-1].type)
    field = records.fragment.fields[level.field]
    prefix: list[Expression] = []
    if len(keys) > 1:
        [max_characters, *_] = indexed_lengths(records.fragment, field)
        prefix = [sort_key(field, value, max_characters)]
    return [rank_column, *keys], [number(position_rank), *prefix, value]


def _lexicographic(
    columns: list[Expression], bounds: list[Expression], descends: list[bool]
) -> Expression:
    """Compare level by level, where levels differ in direction."""

    def step(tie: Expression, at: int) -> Expression:
        is_beyond = columns[at] < bounds[at] if descends[at] else columns[at] > bounds[at]
        return sa.or_(is_beyond, sa.and_(columns[at] == bounds[at], tie))

    return reduce(step, reversed(range(len(columns))), sa.false())
