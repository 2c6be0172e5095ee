"""Expressions for values within documents and maps, as texts and numbers, also for indexes.

A statement must use the expression of the index, so both are built here. The keys of an index are
names of the schema, which a statement quotes; keys of other paths are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.postgres.sql import constant

__all__ = ["KINDS", "as_number", "as_text", "at_path", "kinds_of"]

_TEXT: Final = sa.Text(collation="C")


def at_path(column: sa.ColumnElement[Any], keys: Iterable[Any]) -> sa.ColumnElement[Any]:
    """Return the value at a path of keys; a text is never taken for the index of an element."""
    for key in keys:
        column = column.op("->", return_type=JSONB())(key)
    return column


def as_text(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return a string value; NULL for any other value."""
    text = value.op("#>>", return_type=_TEXT)(sa.literal_column("'{}'"))
    viewed = sa.case((sa.func.jsonb_typeof(value) == constant("string"), text))
    return sa.type_coerce(sa.collate(viewed, "C"), _TEXT)


def as_number(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return a number value; NULL for any other value."""
    number = sa.case(
        (sa.func.jsonb_typeof(value) == constant("number"), sa.cast(value, sa.Numeric()))
    )
    return sa.cast(number, sa.Numeric())  # an index takes no bare CASE


KINDS: Final[Mapping[str, tuple[Field, Callable[[Any], sa.ColumnElement[Any]]]]] = {
    "text": (Field("text", FieldType.STRING), as_text),
    "number": (Field("number", FieldType.FLOAT), as_number),
}
"""By the kind of a value: a field of that kind, and the function that casts to it."""


def kinds_of(field: Field) -> Sequence[str]:
    """Return the kinds of values that a document or a map can have at a path."""
    if field.items in (None, FieldType.DOCUMENT):
        return tuple(KINDS)
    return ("text",) if field.items is FieldType.STRING else ("number",)
