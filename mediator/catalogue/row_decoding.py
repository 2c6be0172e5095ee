"""Rows of the catalogue that a file holds, which may say anything: read as their columns want them.

Checked is what the rest of the code relies on without a look of its own: types, what must be there,
and JSON as far as a row that breaks it would keep all others from being read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Integer,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import ColumnCollectionConstraint

from mediator.access.model import parse_grants
from mediator.base.errors import Invalid
from mediator.catalogue.runs import ENDED
from mediator.catalogue.tables import (
    admission_rules,
    api_keys,
    runs,
    secrets,
    tenant_databases,
    tenants,
)
from mediator.schema.documents import check_storable
from mediator.schema.errors import InvalidValue
from mediator.schema.scalars import SCALAR_DECODERS, Decoder, string_decoder
from mediator.schema.types import FieldType

__all__ = ["KEPT", "DecodedRow", "decode_row", "kept_columns"]

KEPT: Final[tuple[Table, ...]] = (
    secrets,
    runs,
    tenants,
    tenant_databases,
    api_keys,
    admission_rules,
)
"""Their rows are in backups."""

_LONGEST_KEY: Final = 2_000
"""Bytes of a text in an index: PostgreSQL takes 2,704 of all columns together."""

_DEEPEST: Final = 250
"""Objects and arrays within each other: what writes them as JSON goes to 254."""


@dataclass(frozen=True, slots=True)
class DecodedRow:
    """A row, with the Python values of its columns by name."""

    table: Table
    values: Mapping[str, Any]


def kept_columns(table: Table) -> list[Column[Any]]:
    """Return the columns that a backup holds: not those that number the rows of a catalogue."""
    return [
        column
        for column in table.c
        if column.identity is None and not (column.primary_key and column.default)
    ]


def decode_row(raw: Any) -> DecodedRow | None:
    """Read a row; columns that only a later version knows are left out.

    Args:
        raw: Parsed JSON: an object of `table`, a name, and `row`, its columns.

    Returns:
        None: it is of a table that only a later version knows.

    Raises:
        InvalidValue: It is no row, lacks a column, or has something else in one.
    """
    match raw:
        case {"table": str(name), "row": dict(row)}:
            table = _TABLES.get(name)
            return None if table is None else DecodedRow(table, _values(table, row))
    raise InvalidValue("it must have a table and a row")


def _values(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    values = {}
    for column in kept_columns(table):
        if column.name in row:
            values[column.name] = _value(column, row[column.name])
        elif _is_required(column):
            raise InvalidValue(f"{column} is missing")
    return values


def _value(column: Column[Any], raw: Any) -> Any:
    if raw is None and _may_be_null(column):
        return None
    try:
        return _decoder_of(column)(raw)
    except (InvalidValue, Invalid) as error:
        raise InvalidValue(f"{column} {error}") from error


def _is_required(column: Column[Any]) -> bool:
    has_default = column.default is not None or column.server_default is not None
    return not (_may_be_null(column) or has_default)


def _may_be_null(column: Column[Any]) -> bool:
    # A worker would take a run that has not ended.
    return bool(column.nullable) and column is not runs.c.ended


def _decoder_of(column: Column[Any]) -> Decoder:
    if (special := _DECODERS.get(str(column))) is not None:
        return special
    match column.type:
        case Text():
            return _key if _is_indexed(column) else _TEXT
        case BigInteger():
            return partial(_count, 2**53)
        case Integer():
            return partial(_count, 2**31)
        case Boolean():
            return SCALAR_DECODERS[FieldType.BOOLEAN]
        case DateTime():
            return SCALAR_DECODERS[FieldType.TIMESTAMP]
        case JSONB():
            return _object
    raise TypeError(f"No backup has held a column of the type of {column}.")


def _is_indexed(column: Column[Any]) -> bool:
    table = column.table
    assert isinstance(table, Table)
    indexed = [index.columns for index in table.indexes]
    keys = [k.columns for k in table.constraints if isinstance(k, ColumnCollectionConstraint)]
    return any(column.name in columns for columns in (*indexed, *keys))


def _key(raw: Any) -> str:
    text = str(_TEXT(raw))
    if len(text.encode()) > _LONGEST_KEY:
        raise InvalidValue(f"must be at most {_LONGEST_KEY} bytes long")
    return text


def _count(below: int, raw: Any) -> int:
    if type(raw) is not int or not 0 <= raw < below:
        raise InvalidValue(f"must be an integer from 0 and below {below}")
    return raw


def _object(raw: Any) -> dict[str, Any]:
    if type(raw) is not dict:
        raise InvalidValue("must be an object")
    check_storable(raw, _DEEPEST)
    return raw


def _limits(raw: Any) -> dict[str, Any]:
    limits = _object(raw)
    if any(type(each) not in (int, float) or each < 0 for each in limits.values()):
        raise InvalidValue("must be an object of numbers")
    return limits


def _author(raw: Any) -> dict[str, Any]:
    author = _object(raw)
    if author.keys() != {"tenant", "subject"} or any(type(a) is not str for a in author.values()):
        raise InvalidValue("must be a tenant and a subject")
    return author


def _grants(raw: Any) -> list[Any]:
    if type(raw) is not list:
        raise InvalidValue("must be an array")
    parse_grants(raw)
    return raw


def _state(raw: Any) -> str:
    if raw not in _ENDED:
        raise InvalidValue(f"must be one of {', '.join(_ENDED)}")
    return str(raw)


_TEXT: Final = string_decoder()
_ENDED: Final = sorted(ENDED)
_TABLES: Final = {str(table.name): table for table in KEPT}
_DECODERS: Final[Mapping[str, Decoder]] = {
    "admission_rules.author": _author,
    "api_keys.grants": _grants,
    "runs.state": _state,
    "tenants.limits": _limits,
}
"""Of columns of which more is relied on than their type."""
