"""The canonical form of a value: equal values have the same form, on all systems.

- Integers, floats, decimals, and texts that are decimal numbers become decimal digits, without
  trailing zeros of a fraction, and without a sign of zero. A text with a leading zero, a plus, or
  an exponent is not a number: it may be a code. A float keeps its exponent below 1e-20, and from
  1e20 on.
- Timestamps, and texts that are timestamps with a zone, become `yyyy-mm-dd hh:mm:ss[.ffffff]` in
  UTC.
- Booleans are `true` and `false`; binary is base64; any other text is unchanged.
"""

from __future__ import annotations

from enum import StrEnum
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    NumericType,
    TimestampType,
)

from mediator.catalogue.storable import REPLACEMENT
from spark_jobs.profiling.spec import ValueRule

__all__ = [
    "NUMBER",
    "CellType",
    "as_text",
    "cell_type",
    "has_value",
    "hash_key",
    "normalise",
    "normalise_typed",
]

NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
"""The pattern of texts that count as numbers."""

_TIMESTAMP: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)
# The kept digits end with 1 to 9, so that the pattern does not try a match at each zero.
_ZEROS: Final = r"\.0*$|(\.[0-9]*[1-9])0+$"
_MIN_FIXED: Final = 1e-20
_MAX_FIXED: Final = 1e20


class CellType(StrEnum):
    """The type of a value in its store."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    EMPTY = "empty"
    """An object or list without members: a path without a value."""


def cell_type(type_: DataType) -> CellType:
    """Return the type of a scalar; dates and intervals are texts."""
    match type_:
        case NumericType():
            return CellType.NUMBER
        case BooleanType():
            return CellType.BOOLEAN
        case TimestampType():
            return CellType.TIMESTAMP
        case BinaryType():
            return CellType.BINARY
    return CellType.TEXT


def has_value(text: Column, type_: Column, rule: ValueRule) -> Column:
    """Whether a cell is neither null nor a text that represents null."""
    if not rule.nulls:
        return text.isNotNull()
    nulls = [text_.strip(" ") for text_ in rule.nulls] if rule.fold else rule.nulls
    stands_for_null = _trim(text, rule).isin(*nulls)
    return text.isNotNull() & ~((type_ == CellType.TEXT.value) & stands_for_null)


def as_text(value: Column, of: CellType) -> Column:
    """Return the text of values of one type; NUL, which reports cannot store, becomes U+FFFD."""
    match of:
        case CellType.BINARY:
            return f.base64(value)
        case CellType.TEXT:
            return f.replace(value.cast("string"), f.lit("\0"), f.lit(REPLACEMENT))
    return value.cast("string")


def normalise(text: Column, of: CellType, rule: ValueRule) -> Column:
    """Return the canonical form of values of one type."""
    match of:
        case CellType.NUMBER:
            return _number(_without_exponent(text))
        case CellType.TEXT:
            return _text(text, rule)
    return text


def normalise_typed(text: Column, type_: Column, rule: ValueRule) -> Column:
    """Return the canonical form of values of mixed types, each by its own type."""
    cases = [(type_ == of.value, normalise(text, of, rule)) for of in CellType]
    first, *remaining_cases = cases
    return reduce(lambda column, case: column.when(*case), remaining_cases, f.when(*first))


def hash_key(value: Column) -> tuple[Column, Column]:
    """Return 128 bits for a value: two hashes with different seeds."""
    return f.xxhash64(value), f.xxhash64(f.lit(1), value)


def _text(text: Column, rule: ValueRule) -> Column:
    text = _trim(text, rule)
    folded = f.lower(text) if rule.fold else text
    in_utc = text.try_cast("timestamp").cast("string")
    return (
        f.when(text.rlike(NUMBER), _number(text))
        .when(text.rlike(_TIMESTAMP), f.coalesce(in_utc, folded))
        .otherwise(folded)
    )


def _trim(text: Column, rule: ValueRule) -> Column:
    return f.trim(text) if rule.fold else text


def _number(digits: Column) -> Column:
    short = f.when(digits.contains("."), f.regexp_replace(digits, _ZEROS, "$1")).otherwise(digits)
    positive = f.when(short == "-0", "0").otherwise(short)
    return f.when(digits.startswith("-0"), positive).otherwise(short)


def _without_exponent(text: Column) -> Column:
    """Expand an exponent; the text of a double has at most 17 digits, so the decimal is exact."""
    size = f.abs(text.try_cast("double"))
    large = text.try_cast("decimal(38,18)").cast("string")
    small = text.try_cast("decimal(38,37)").cast("string")
    return (
        f.when(~f.upper(text).contains("E"), text)
        .when((size >= 1) & (size < _MAX_FIXED), large)
        .when((size >= _MIN_FIXED) & (size < 1), small)
        .when(size == 0, "0")
        .otherwise(f.upper(text))
    )
