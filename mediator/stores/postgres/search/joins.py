"""Joins: of records that a condition depends on (semi-joins), and of records that are shown.

A page of documents has one row for each object. It has the id and the fields of the record, what
else the order needs, and the names of nulls; then the same of each joined record. So most documents
are made of their rows in one step.
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
"""Separates the names of nulls; no field's name has it."""


class SemiJoinShape(NamedTuple):
    """The shape of a semi-join.

    Attributes:
        reference: The field that refers.
        fragment: What it refers to.
        shape: The shape of the condition there.
        first: The position of the condition's first constant.
        inner: What the record that is referred to must itself refer to.
    """

    reference: str
    fragment: Fragment
    shape: FilterShape
    first: int
    inner: tuple[SemiJoinShape, ...]


def shape_of(semi_join: SemiJoin, shape_filter: ShapeFilter, constants: list[Any]) -> SemiJoinShape:
    """Return the shape of a semi-join, and add its constants to those of the search so far."""
    shaped, first = shape_filter(semi_join.fragment, semi_join.filter), len(constants)
    constants += shaped.constants
    inner = tuple(shape_of(each, shape_filter, constants) for each in semi_join.inner)
    return SemiJoinShape(semi_join.reference, semi_join.fragment, shaped.shape, first, inner)


def conditions_of(
    outer: RecordTable, semi_joins: Sequence[SemiJoinShape], tables: TableOf, depth: int = 1
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the condition of each semi-join; `depth` is how many references lead there."""
    for each in semi_joins:
        inner = tables(each.fragment).aliased(f"_{depth}")
        refers = inner.id == outer.columns[each.reference]
        meets = condition(inner, each.shape, each.first)
        further = conditions_of(inner, each.inner, tables, depth + 1)
        there: sa.Select[Any] = sa.select(number(1)).where(refers, inner.live, meets, *further)
        yield there.correlate(outer.table).exists()


class JoinShape(NamedTuple):
    """The shape of what is joined.

    Attributes:
        join: What is joined, without its filter.
        shape: The shape of the filter; None: there is none.
        first: The position of the filter's first constant.
    """

    join: ShownJoin
    shape: FilterShape | None
    first: int


class DocumentShape(NamedTuple):
    """What a row holds: the fields that are shown, those of the order only, and what is joined."""

    names: tuple[str, ...]
    hidden: tuple[str, ...]
    joins: tuple[JoinShape, ...]

    @property
    def width(self) -> int:
        """How many fields a row holds."""
        return len(self.names) + sum(len(each.join.names) for each in self.joins)


def document_shape(
    names: tuple[str, ...],
    order: Sequence[str],
    joins: Sequence[ShownJoin],
    shape_filter: ShapeFilter,
    constants: list[Any],
) -> DocumentShape:
    """Return the shape of documents, and add the constants of the joins to those of the search."""
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
    """Select the rows of documents, with the conditions on what is joined."""
    joined: dict[str, RecordTable] = {"": records}
    source: Any = records.table
    conditions: list[sa.ColumnElement[bool]] = []
    columns = [*_columns(records, (*shape.names, *shape.hidden))]
    for at, (join, condition_shape, first) in enumerate(shape.joins):
        inner = joined[join.alias] = tables(join.fragment).aliased(f"_j{at}")
        refers = inner.id == joined[join.outer].columns[join.reference]
        source = source.outerjoin(inner.table, sa.and_(refers, inner.live))
        columns += _columns(inner, join.names)
        if condition_shape is not None:
            conditions += [inner.id.is_not(None), condition(inner, condition_shape, first)]
    labelled = [column.label(f"c{i}") for i, column in enumerate(columns)]
    return sa.select(*labelled).select_from(source).where(*conditions)


def _columns(records: RecordTable, names: Sequence[str]) -> Iterator[sa.ColumnElement[Any]]:
    yield records.id
    yield from (records.columns[name] for name in names)
    # As a text, for most often there are none: an array would take longer to read.
    nulls = sa.type_coerce(records.table.c["_nulls"], NULLS)
    yield sa.func.array_to_string(nulls, constant(_SEPARATOR))


class DocumentReader:
    """Reads the rows of documents; `order` are the fields of the order."""

    def __init__(
        self, records: RecordTable, shape: DocumentShape, order: Sequence[str], tables: TableOf
    ) -> None:
        kept = (*shape.names, *shape.hidden)
        self._whole = _reader(records, kept, 0)
        self._own = self._whole if not shape.hidden else _reader(records, shape.names, 0, kept)
        self._order = tuple(order)
        self._joins: list[tuple[str, int, Callable[[Any], Document]]] = []
        start = len(kept) + 2
        for join, *_ in shape.joins:
            read = _reader(tables(join.fragment), join.names, start)
            self._joins.append((join.alias, start, read))
            start += len(join.names) + 2

    def documents(self, rows: Sequence[Any]) -> list[Document]:
        documents = list(map(self._own, rows))
        for alias, start, read in self._joins:
            for document, row in zip(documents, rows, strict=True):
                document[alias] = None if row[start] is None else read(row)
        return documents

    def record(self, row: Any) -> Record:
        """Return the record of a row, with the fields of the order."""
        document = self._whole(row)
        values = {name: document[name] for name in self._order if name in document}
        return Record(row[0], 0, {}, values)


def _reader(
    records: RecordTable, names: Sequence[str], start: int, kept: Sequence[str] | None = None
) -> Callable[[Any], Document]:
    """Return what reads a document out of a row, from column `start` on."""
    keys, end = ("id", *names), start + 1 + len(names)
    nulls_at = start + 1 + len(names if kept is None else kept)
    codecs = [(name, records.codecs[name].decode) for name in names]
    decoders = [(name, decode) for name, decode in codecs if decode is not None]

    def read(row: Any) -> Document:
        # From the beginning of a row it takes no slice: columns beyond the keys are left over.
        document = dict(zip(keys, row[start:end] if start else row, strict=False))
        if None in document.values():
            document = _without_missing(document, row[nulls_at])
        for name, decode in decoders:
            if (value := document.get(name)) is not None:
                document[name] = decode(value)
        return document

    return read


def _without_missing(document: Document, nulls: str) -> Values:
    known = nulls.split(_SEPARATOR)
    return {name: v for name, v in document.items() if v is not None or name in known}
