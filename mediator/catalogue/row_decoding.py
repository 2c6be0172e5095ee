"""Decodes catalogue rows from a file, whose content is not trusted, by their columns.

It checks everything that other code relies on without its own check: types, required columns, and
JSON where a malformed row would make all others unreadable.
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

__all__ = ["BACKUP_TABLES", "DecodedRow", "backup_columns", "decode_row"]

BACKUP_TABLES: Final[tuple[Table, ...]] = (
    secrets,
    runs,
    tenants,
    tenant_databases,
    api_keys,
    admission_rules,
)
"""Tables whose rows are in backups."""

_MAX_KEY_BYTES: Final = 2_000
"""Maximum bytes of an indexed text: PostgreSQL allows 2,704 for all columns together."""

_MAX_DEPTH: Final = 250
"""Maximum nesting depth of objects and arrays: the JSON encoder allows 254."""


@dataclass(frozen=True, slots=True)
class DecodedRow:
    """A row, with the Python values of its columns by name."""

    table: Table
    values: Mapping[str, Any]


def backup_columns(table: Table) -> list[Column[Any]]:
    """Return the columns in a backup: all except those that number a catalogue's rows."""
    return [
        column
        for column in table.c
        if column.identity is None and not (column.primary_key and column.default)
    ]


def decode_row(raw: Any) -> DecodedRow | None:
    """Decode a row; columns that only a later version has are omitted.

    Args:
        raw: Parsed JSON: an object of `table`, a name, and `row`, its columns.

    Returns:
        None: its table is only in a later version.

    Raises:
        InvalidValue: It is not a row, lacks a column, or has an invalid value in one.
    """
    match raw:
        case {"table": str(name), "row": dict(row)}:
            table = _TABLES.get(name)
            return None if table is None else DecodedRow(table, _values(table, row))
    raise InvalidValue("it must have a table and a row")


def _values(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    values = {}
    for column in backup_columns(table):
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
    if (decoder := _DECODERS.get(str(column))) is not None:
        return decoder
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
    indexes = [index.columns for index in table.indexes]
    keys = [k.columns for k in table.constraints if isinstance(k, ColumnCollectionConstraint)]
    return any(column.name in columns for columns in (*indexes, *keys))


def _key(raw: Any) -> str:
    text = str(_TEXT(raw))
    if len(text.encode()) > _MAX_KEY_BYTES:
        raise InvalidValue(f"must be at most {_MAX_KEY_BYTES} bytes long")
    return text


def _count(below: int, raw: Any) -> int:
    if type(raw) is not int or not 0 <= raw < below:
        raise InvalidValue(f"must be an integer from 0 and below {below}")
    return raw


def _object(raw: Any) -> dict[str, Any]:
    if type(raw) is not dict:
        raise InvalidValue("must be an object")
    check_storable(raw, _MAX_DEPTH)
    return raw


def _limits(raw: Any) -> dict[str, Any]:
    limits = _object(raw)
    if any(type(limit) not in (int, float) or limit < 0 for limit in limits.values()):
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
_TABLES: Final = {str(table.name): table for table in BACKUP_TABLES}
_DECODERS: Final[Mapping[str, Decoder]] = {
    "admission_rules.author": _author,
    "api_keys.grants": _grants,
    "runs.state": _state,
    "tenants.limits": _limits,
}
"""Of columns with more requirements than their type."""
