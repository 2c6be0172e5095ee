"""Joins with records that a condition depends on (semi-joins), and with records that are shown.

A page of documents has one row for each object: the id and fields of the record, further fields of
the order, and the names of nulls; then the same for each joined record. So most documents are
converted from their rows in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import sqlalchemy as sa

from mediator.model.filters import Filter
from mediator.schema.types import Values
from mediator.stores.port import Fragment, Record, SemiJoin, ShownJoin
from mediator.stores.postgres.layout import NULLS, RecordTable, TableOf
from mediator.stores.postgres.search.conditions import condition
from mediator.stores.postgres.search.predicates import FilterShape, ShapedFilter
from mediator.stores.postgres.sql import constant, number

__all__ = [
    "DocumentReader",
    "DocumentShape",
    "SemiJoinShape",
    "conditions_of",
    "document_shape",
    "documents_of",
    "shape_of",
]

Document: TypeAlias = dict[str, Any]
ShapeFilter: TypeAlias = Callable[[Fragment, Filter | None], ShapedFilter]

_SEPARATOR: Final = ","
"""Separates the names of nulls; no field name contains it."""


class SemiJoinShape(NamedTuple):
    """The shape of a semi-join.

    Attributes:
        reference: The reference field.
        fragment: The referenced fragment.
        shape: The shape of the condition on the referenced record.
        first: The position of the condition's first constant.
        inner: Semi-joins of the referenced record.
    """

    reference: str
    fragment: Fragment
    shape: FilterShape
    first: int
    inner: tuple[SemiJoinShape, ...]


def shape_of(semi_join: SemiJoin, shape_filter: ShapeFilter, constants: list[Any]) -> SemiJoinShape:
    """Return the shape of a semi-join, and append its constants to those of the search."""
    shaped, first = shape_filter(semi_join.fragment, semi_join.filter), len(constants)
    constants += shaped.constants
    inner = tuple(shape_of(inner_join, shape_filter, constants) for inner_join in semi_join.inner)
    return SemiJoinShape(semi_join.reference, semi_join.fragment, shaped.shape, first, inner)


def conditions_of(
    outer: RecordTable, semi_joins: Sequence[SemiJoinShape], tables: TableOf, depth: int = 1
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the condition of each semi-join; `depth` is the number of references to it."""
    for semi_join in semi_joins:
        inner = tables(semi_join.fragment).aliased(f"_{depth}")
        is_referenced = inner.id == outer.columns[semi_join.reference]
        matches = condition(inner, semi_join.shape, semi_join.first)
        inner_conditions = conditions_of(inner, semi_join.inner, tables, depth + 1)
        subquery: sa.Select[Any] = sa.select(number(1)).where(
            is_referenced, inner.live, matches, *inner_conditions
        )
        yield subquery.correlate(outer.table).exists()


class JoinShape(NamedTuple):
    """The shape of a join.

    Attributes:
        join: The join without its filter.
        shape: The shape of the filter; None: no filter.
        first: The position of the filter's first constant.
    """

    join: ShownJoin
    shape: FilterShape | None
    first: int


class DocumentShape(NamedTuple):
    """The contents of a row: shown fields, hidden fields of the order, and joined records."""

    names: tuple[str, ...]
    hidden: tuple[str, ...]
    joins: tuple[JoinShape, ...]

    @property
    def width(self) -> int:
        """The number of shown fields in a row."""
        return len(self.names) + sum(len(join.join.names) for join in self.joins)


def document_shape(
    names: tuple[str, ...],
    order: Sequence[str],
    joins: Sequence[ShownJoin],
    shape_filter: ShapeFilter,
    constants: list[Any],
) -> DocumentShape:
    """Return the shape of documents, and append the constants of the joins to the search's."""
    shapes = []
    for join in joins:
        shape, first = None, len(constants)
        if join.filter is not None:
            shaped = shape_filter(join.fragment, join.filter)
            shape = shaped.shape
            constants += shaped.constants
        shapes.append(JoinShape(replace(join, filter=None), shape, first))
    hidden = tuple(name for name in order if name not in names)
    return DocumentShape(names, hidden, tuple(shapes))


def documents_of(records: RecordTable, shape: DocumentShape, tables: TableOf) -> sa.Select[Any]:
    """Select the rows of documents, with the conditions on joined records."""
    joined: dict[str, RecordTable] = {"": records}
    source: Any = records.table
    conditions: list[sa.ColumnElement[bool]] = []
    columns = [*_columns(records, (*shape.names, *shape.hidden))]
    for at, (join, condition_shape, first) in enumerate(shape.joins):
        inner = joined[join.alias] = tables(join.fragment).aliased(f"_j{at}")
        is_referenced = inner.id == joined[join.outer].columns[join.reference]
        source = source.outerjoin(inner.table, sa.and_(is_referenced, inner.live))
        columns += _columns(inner, join.names)
        if condition_shape is not None:
            conditions += [inner.id.is_not(None), condition(inner, condition_shape, first)]
    labelled = [column.label(f"c{i}") for i, column in enumerate(columns)]
    return sa.select(*labelled).select_from(source).where(*conditions)


def _columns(records: RecordTable, names: Sequence[str]) -> Iterator[sa.ColumnElement[Any]]:
    yield records.id
    yield from (records.columns[name] for name in names)
    # As a text, because usually there are none: decoding an array would take longer.
    nulls = sa.type_coerce(records.table.c["_nulls"], NULLS)
    yield sa.func.array_to_string(nulls, constant(_SEPARATOR))


class DocumentReader:
    """Reads the rows of documents; `order` are the fields of the order."""

    def __init__(
        self, records: RecordTable, shape: DocumentShape, order: Sequence[str], tables: TableOf
    ) -> None:
        names = (*shape.names, *shape.hidden)
        self._read_full = _reader(records, names, 0)
        self._read_document = (
            self._read_full if not shape.hidden else _reader(records, shape.names, 0, names)
        )
        self._order = tuple(order)
        self._joins: list[tuple[str, int, Callable[[Any], Document]]] = []
        start = len(names) + 2
        for join, *_ in shape.joins:
            read = _reader(tables(join.fragment), join.names, start)
            self._joins.append((join.alias, start, read))
            start += len(join.names) + 2

    def documents(self, rows: Sequence[Any]) -> list[Document]:
        documents = list(map(self._read_document, rows))
        for alias, start, read in self._joins:
            for document, row in zip(documents, rows, strict=True):
                document[alias] = None if row[start] is None else read(row)
        return documents

    def record(self, row: Any) -> Record:
        """Return the record of a row, with the fields of the order."""
        document = self._read_full(row)
        values = {name: document[name] for name in self._order if name in document}
        return Record(row[0], 0, {}, values)


def _reader(
    records: RecordTable, names: Sequence[str], start: int, row_names: Sequence[str] | None = None
) -> Callable[[Any], Document]:
    """Return a function that reads a document from a row, from column `start` on."""
    keys, end = ("id", *names), start + 1 + len(names)
    nulls_at = start + 1 + len(names if row_names is None else row_names)
    codecs = [(name, records.codecs[name].decode) for name in names]
    decoders = [(name, decode) for name, decode in codecs if decode is not None]

    def read(row: Any) -> Document:
        # At the beginning of a row no slice is needed: `zip` ignores the columns beyond the keys.
        document = dict(zip(keys, row[start:end] if start else row, strict=False))
        if None in document.values():
            document = _without_missing(document, row[nulls_at])
        for name, decode in decoders:
            if (value := document.get(name)) is not None:
                document[name] = decode(value)
        return document

    return read


def _without_missing(document: Document, nulls: str) -> Values:
    null_names = nulls.split(_SEPARATOR)
    return {name: v for name, v in document.items() if v is not None or name in null_names}
