"""Statements: built with SQLAlchemy Core, compiled once, run as text by asyncpg.

SQLAlchemy only builds and quotes: its execution costs several hundred microseconds a call. asyncpg
caches the prepared statement of each text on each connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ClauseElement

__all__ = [
    "DIALECT",
    "Statement",
    "constant",
    "json_object",
    "number",
    "parameter",
    "qualified",
    "quoted",
]

# SQLAlchemy has no types for these.
_new_dialect: Any = PGDialect_asyncpg
_text: Any = sa.Text()

DIALECT: Final[Dialect] = _new_dialect()
# SQLAlchemy shortens labels within six characters of the limit; `layout` keeps ours below it.
DIALECT.max_identifier_length = 63 + 6
_QUOTE: Final = _text.literal_processor(DIALECT)
_PAIRS: Final = 40
"""Pairs in one jsonb_build_object: PostgreSQL takes 100 arguments, a class can have 500 fields."""


class Statement:
    """A compiled statement and the order of its parameters."""

    __slots__ = ("_fixed", "_order", "text")

    def __init__(self, element: ClauseElement) -> None:
        compiled: Any = element.compile(dialect=DIALECT)
        self.text = str(compiled)
        self._order: tuple[str, ...] = tuple(compiled.positiontup or ())
        self._fixed = {n: b.value for n, b in compiled.binds.items() if not b.required}

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """Put the parameters in the order in which the text numbers them."""
        if self._fixed:
            values = {**self._fixed, **values}
        return [values[name] for name in self._order]


def parameter(name: str, type_: Any) -> sa.BindParameter[Any]:
    """Return a parameter whose value comes with each execution."""
    return sa.bindparam(name, type_=type_, required=True)


def constant(text: str) -> sa.ColumnElement[Any]:
    """Return a string literal: expressions with parameters would not match indexes."""
    return sa.literal_column(_QUOTE(text), sa.Text())


def number(value: int) -> sa.ColumnElement[Any]:
    return sa.literal_column(str(int(value)), sa.Integer())


def quoted(*names: str) -> str:
    """Quote a name, or qualified name, for plain-text statements."""
    return ".".join(map(DIALECT.identifier_preparer.quote_identifier, names))


def qualified(table: sa.Table) -> str:
    """Quote a table's name, qualified by its schema, for plain-text statements."""
    return quoted(str(table.schema), table.name)


def json_object(members: Iterable[tuple[str, sa.ColumnElement[Any]]]) -> sa.ColumnElement[Any]:
    """Build a jsonb object of any number of members."""
    flat = [part for name, column in members for part in (constant(name), column)]
    step = 2 * _PAIRS
    chunks = [flat[i : i + step] for i in range(0, len(flat), step)] or [[]]
    document: sa.ColumnElement[Any] = sa.func.jsonb_build_object(*chunks[0], type_=JSONB)
    for chunk in chunks[1:]:
        document = document.op("||", return_type=JSONB())(
            sa.func.jsonb_build_object(*chunk, type_=JSONB)
        )
    return document
