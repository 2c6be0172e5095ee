"""Field types and their domain values.

They are converted from and to JSON only at the edges (`mediator.schema.values`):

=========== ======================= =============================================
type        Python form             JSON form
=========== ======================= =============================================
string      str                     string
integer     int (64 bit, signed)    number
float       float (finite)          number
decimal     Decimal (<= 34 digits)  string
boolean     bool                    true or false
timestamp   datetime (UTC, us)      RFC 3339 string
binary      bytes                   base64 string
document    dict of JSON values     object
list        list of items           array
set         list of items, sorted   array, sorted, without duplicates
map         dict of str to items    object
reference   str, the id of another  string
=========== ======================= =============================================

``None`` is a stored null; a field that is missing is absent from its mapping. The two differ.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias

__all__ = ["ARRAYS", "SCALARS", "TEXTS", "FieldType", "Value", "Values", "projected"]

Value: TypeAlias = (
    str | int | float | Decimal | bool | datetime | bytes | list[Any] | dict[str, Any] | None
)
Values: TypeAlias = dict[str, Value]


class FieldType(StrEnum):
    """The type of a field, as the schema names it."""

    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    DOCUMENT = "document"
    LIST = "list"
    SET = "set"
    MAP = "map"
    REFERENCE = "reference"


SCALARS = frozenset(FieldType) - {
    FieldType.DOCUMENT,
    FieldType.LIST,
    FieldType.SET,
    FieldType.MAP,
}
"""Types with a total order and equality; only they can be items of a set."""

TEXTS = frozenset({FieldType.STRING, FieldType.REFERENCE})
"""Types whose values are texts."""

ARRAYS = frozenset({FieldType.LIST, FieldType.SET})
"""Types whose values are arrays of items; an index has an entry for each item."""


def projected(values: Values, names: tuple[str, ...] | None) -> Values:
    """Return the present values of some names, in the order of the names; None: all values."""
    return values if names is None else {n: values[n] for n in names if n in values}
