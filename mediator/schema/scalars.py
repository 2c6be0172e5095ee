"""Scalar values between JSON and Python: one decoder and at most one encoder for each type.

A decoder takes parsed JSON and returns the Python form, or raises `InvalidValue`.
"""

from __future__ import annotations

import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Subnormal, Underflow
from math import isfinite
from typing import Any, Final, TypeAlias

from mediator.schema.errors import InvalidValue
from mediator.schema.ids import id_error
from mediator.schema.limits import (
    DECIMAL_DIGITS,
    DECIMAL_MAX_EXPONENT,
    DECIMAL_MIN_EXPONENT,
    DECIMAL_TEXT_LENGTH,
    INTEGER_MAX,
    INTEGER_MIN,
)
from mediator.schema.types import FieldType

__all__ = [
    "DECIMAL128",
    "SCALAR_DECODERS",
    "SCALAR_ENCODERS",
    "Decoder",
    "Encoder",
    "binary_decoder",
    "canonical_decimal",
    "check_text",
    "integer",
    "string_decoder",
    "text_error",
]

Decoder: TypeAlias = Callable[[Any], Any]
Encoder: TypeAlias = Callable[[Any], Any]

DECIMAL128: Final = Context(
    prec=DECIMAL_DIGITS,
    Emin=DECIMAL_MIN_EXPONENT,
    Emax=DECIMAL_MAX_EXPONENT,
    traps=[Inexact, InvalidOperation, Overflow, Subnormal, Underflow],
)
"""Arithmetic that is exact or raises `ArithmeticError`."""

# Wide enough to normalise any value of a store without rounding.
_WIDE = Context(prec=200_000, Emin=-400_000, Emax=400_000)
_ZERO = Decimal(0)
_PLAIN_EXPONENT = 34
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,6})?")
# RFC 3339 section 5.6; second 60 is left out, because no store can hold a leap second.
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt]"
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


def text_error(text: str) -> str | None:
    """Return why a text cannot be stored, or None.

    PostgreSQL cannot hold NUL, and lone surrogates have no UTF-8: every store refuses both, so that
    the result does not depend on the placement.
    """
    if "\0" in text:
        return "must not contain NUL"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "must not contain lone surrogates"
    return None


def check_text(text: str) -> None:
    """Raise `InvalidValue` for a text that cannot be stored."""
    if (error := text_error(text)) is not None:
        raise InvalidValue(error)


def string_decoder(max_length: int = sys.maxsize) -> Decoder:
    """Decode strings of at most `max_length` characters (code points)."""

    def string(raw: Any) -> str:
        if type(raw) is not str:
            raise InvalidValue("must be a string")
        if len(raw) > max_length:
            raise InvalidValue(f"must be at most {max_length} characters long")
        if not raw.isascii() or "\0" in raw:
            check_text(raw)
        return raw

    return string


def binary_decoder(max_length: int = sys.maxsize) -> Decoder:
    """Decode base64 (RFC 4648 section 4, padded, canonical) of at most `max_length` bytes."""

    def binary(raw: Any) -> bytes:
        if type(raw) is not str:
            raise InvalidValue("must be a string of base64")
        try:
            value = b64decode(raw, validate=True)
        except ValueError:
            raise InvalidValue("must be padded base64") from None
        # Section 3.5: pad bits that are not zero would give one value several encodings.
        if _binary_text(value) != raw:
            raise InvalidValue("must be canonical base64")
        if len(value) > max_length:
            raise InvalidValue(f"must be at most {max_length} bytes long")
        return value

    return binary


def integer(raw: Any) -> int:
    if type(raw) is not int:
        raise InvalidValue("must be an integer")
    if not INTEGER_MIN <= raw <= INTEGER_MAX:
        raise InvalidValue("must be between -2^63 and 2^63 - 1")
    return raw


def _float(raw: Any) -> float:
    if type(raw) is not float and type(raw) is not int:
        raise InvalidValue("must be a number")
    try:
        value = float(raw)
    except OverflowError:
        raise InvalidValue("must be a finite double") from None
    if not isfinite(value):
        raise InvalidValue("must be a finite double")
    # -0.0 becomes 0.0: the two are equal, yet stores differ in which of them they return.
    return value + 0.0


def _decimal(raw: Any) -> Decimal:
    if type(raw) is not str:
        raise InvalidValue("must be a string with a decimal number")
    if len(raw) > DECIMAL_TEXT_LENGTH or not _DECIMAL.fullmatch(raw):
        raise InvalidValue("must be a decimal number such as -12.50 or 1E+40")
    try:
        return canonical_decimal(DECIMAL128.create_decimal(raw))
    except ArithmeticError:
        raise InvalidValue(
            f"must have at most {DECIMAL_DIGITS} significant digits and an exponent from"
            f" {DECIMAL_MIN_EXPONENT} to {DECIMAL_MAX_EXPONENT}"
        ) from None


def _boolean(raw: Any) -> bool:
    if type(raw) is not bool:
        raise InvalidValue("must be true or false")
    return raw


def _timestamp(raw: Any) -> datetime:
    if type(raw) is not str:
        raise InvalidValue("must be a string with a time")
    if not _TIMESTAMP.fullmatch(raw):
        raise InvalidValue("must be a time as in RFC 3339, with offset, microseconds at most")
    try:
        return datetime.fromisoformat(raw.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidValue("must be a time that exists, from year 1 to 9999") from None


def _reference(raw: Any) -> str:
    if type(raw) is not str:
        raise InvalidValue("must be a string with an id")
    if (error := id_error(raw)) is not None:
        raise InvalidValue(error)
    return raw


def canonical_decimal(value: Decimal) -> Decimal:
    """Return the canonical form of equal decimals: no trailing zeros, no sign at zero."""
    return value.normalize(_WIDE) if value else _ZERO


def _decimal_text(value: Decimal) -> str:
    """Encode a decimal in one canonical form: plainly, or as `1E+40` where long."""
    canonical = canonical_decimal(value)
    if -_PLAIN_EXPONENT <= canonical.adjusted() < _PLAIN_EXPONENT:
        return format(canonical, "f")
    return str(canonical)


def _timestamp_text(value: datetime) -> str:
    """Encode a UTC time as RFC 3339: `2024-01-02T03:04:05.123456Z`, no fraction if it is 0."""
    # Strip the offset, +00:00.
    return value.isoformat()[:-6] + "Z"


def _binary_text(value: bytes) -> str:
    return b64encode(value).decode("ascii")


SCALAR_DECODERS: Final[Mapping[FieldType, Decoder]] = {
    FieldType.STRING: string_decoder(),
    FieldType.INTEGER: integer,
    FieldType.FLOAT: _float,
    FieldType.DECIMAL: _decimal,
    FieldType.BOOLEAN: _boolean,
    FieldType.TIMESTAMP: _timestamp,
    FieldType.BINARY: binary_decoder(),
    FieldType.REFERENCE: _reference,
}

SCALAR_ENCODERS: Final[Mapping[FieldType, Encoder]] = {
    FieldType.DECIMAL: _decimal_text,
    FieldType.TIMESTAMP: _timestamp_text,
    FieldType.BINARY: _binary_text,
}
"""Types whose Python form is not JSON; the others are written unchanged."""
