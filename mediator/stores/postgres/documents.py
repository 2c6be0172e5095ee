"""Records as JSON, written by the server: the same as what the mediator would make of them.

Only fields whose JSON is alike everywhere are written here. PostgreSQL spells floats, times and
decimals in ways of its own, and its documents have lost how their numbers were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import sqlalchemy as sa

from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, ShownJoin
from mediator.stores.postgres.conditions import condition
from mediator.stores.postgres.predicates import Shape
from mediator.stores.postgres.semi_joins import Ask
from mediator.stores.postgres.statements import constant
from mediator.stores.postgres.tables import NULLS, RecordTable, TableOf

__all__ = ["DocumentShape", "JoinShape", "Written", "document_shape", "renders", "written"]

Text: TypeAlias = sa.ColumnElement[Any]

_PLAIN: Final = frozenset({FieldType.INTEGER, FieldType.BOOLEAN})
"""Their texts are JSON."""

_STRINGS: Final = frozenset({FieldType.STRING, FieldType.REFERENCE})

_MOST: Final = 50
"""Fields of one document: their expressions are nested, and compiling them is recursive."""


class JoinShape(NamedTuple):
    """The shape of what is joined: see `ShownJoin`.

    Attributes:
        alias: The member.
        outer: The alias of the record with the reference.
        reference: The field that refers.
        fragment: What it refers to.
        names: The fields that are shown.
        shape: The shape of the condition; None: there is none.
        first: The place of the condition's first constant.
    """

    alias: str
    outer: str
    reference: str
    fragment: Fragment
    names: tuple[str, ...]
    shape: Shape | None
    first: int


class DocumentShape(NamedTuple):
    """What a document shows: the fields, and what is joined."""

    names: tuple[str, ...]
    joins: tuple[JoinShape, ...]


class Written(NamedTuple):
    """Documents as a part of a statement.

    Attributes:
        text: The document.
        source: The tables.
        conditions: What the joined records must meet.
    """

    text: Text
    source: Any
    conditions: list[sa.ColumnElement[bool]]


def renders(fragment: Fragment, names: Sequence[str]) -> bool:
    """Whether these fields are written here."""
    types = (fragment.fields[name].type for name in names)
    return len(names) <= _MOST and all(type_ in _PLAIN | _STRINGS for type_ in types)


def document_shape(
    names: tuple[str, ...], joins: Sequence[ShownJoin], ask: Ask, constants: list[Any]
) -> DocumentShape:
    """Return the shape of documents.

    Args:
        names: The fields.
        joins: What is joined.
        ask: Turns a filter into a question.
        constants: Those of the whole search so far; those of the joins are added.
    """
    shapes = []
    for join in joins:
        shape, first = None, len(constants)
        if join.filter is not None:
            asked = ask(join.fragment, join.filter)
            shape = asked.shape
            constants += asked.constants
        own = (join.alias, join.outer, join.reference, join.fragment, join.names)
        shapes.append(JoinShape(*own, shape, first))
    return DocumentShape(names, tuple(shapes))


def written(records: RecordTable, shape: DocumentShape, tables: TableOf) -> Written:
    """Return the documents of records, with all that is joined."""
    joined: dict[str, RecordTable] = {"": records}
    source: Any = records.table
    conditions = []
    for number, join in enumerate(shape.joins):
        inner = joined[join.alias] = tables(join.fragment).aliased(f"_j{number}")
        refers = inner.id == joined[join.outer].columns[join.reference]
        source = source.outerjoin(inner.table, sa.and_(refers, inner.live))
        if join.shape is not None:
            conditions += [inner.id.is_not(None), condition(inner, join.shape, join.first)]
    members = {join.alias: _joined(joined[join.alias], join.names) for join in shape.joins}
    return Written(_document(records, shape.names, members), source, conditions)


def _joined(records: RecordTable, names: Sequence[str]) -> Text:
    return sa.case((records.id.is_(None), constant("null")), else_=_document(records, names, {}))


def _document(records: RecordTable, names: Sequence[str], joined: Mapping[str, Text]) -> Text:
    text = constant('{"id":') + _string(records.id)
    for name in names:
        text = text + _member(records, name)
    for alias, inner in joined.items():
        text = text + constant(_key(alias)) + inner
    return text + constant("}")


def _member(records: RecordTable, name: str) -> Text:
    """Return a member as it follows others; nothing if the field is missing."""
    column, type_ = records.columns[name], records.fragment.fields[name].type
    value = _string(column) if type_ in _STRINGS else sa.cast(column, sa.Text())
    null = constant(name) == sa.any_(sa.type_coerce(records.table.c["_nulls"], NULLS))
    return sa.case(
        (column.is_not(None), constant(_key(name)) + value),
        (null, constant(f"{_key(name)}null")),
        else_=constant(""),
    )


def _string(column: Text) -> Text:
    return sa.cast(sa.func.to_json(column), sa.Text())


def _key(name: str) -> str:
    return f",{orjson.dumps(name).decode()}:"
