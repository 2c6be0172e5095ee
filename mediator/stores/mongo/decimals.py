"""Decimals as texts that sort by value.

Decimal128 would be the obvious form, but mongo-java-server finds two of them equal if their doubles
are: it would leave 0.1 in place of 0.100000000000000000000000000000001. Equal values have equal
texts here, whatever their trailing zeros, so equality and order are exact on every server.

======== ==========================================================================================
zero     ``1``
positive ``2``, the exponent of the first digit as five digits above 50000, the digits
negative ``0``, the complements of all these digits, ``~`` (so that of -1 and -1.1, -1 comes later)
======== ==========================================================================================
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

__all__ = ["decimal_of", "sortable_decimal"]

_BIAS: Final = 50_000
_EXPONENT_DIGITS: Final = 5
_COMPLEMENT: Final = str.maketrans("0123456789", "9876543210")
_ZERO: Final = "1"
_POSITIVE: Final = "2"
_NEGATIVE: Final = "0"
_END: Final = "~"


def sortable_decimal(value: Decimal) -> str:
    """Write a finite decimal."""
    if not value:
        return _ZERO
    sign, digits, _ = value.as_tuple()
    text = f"{value.adjusted() + _BIAS:0{_EXPONENT_DIGITS}d}"
    text += "".join(map(str, digits)).rstrip("0")
    return _NEGATIVE + text.translate(_COMPLEMENT) + _END if sign else _POSITIVE + text


def decimal_of(stored: str) -> Decimal:
    """Read what `sortable_decimal` has written, without trailing zeros."""
    if stored == _ZERO:
        return Decimal(0)
    negative = stored.startswith(_NEGATIVE)
    text = stored[1:-1].translate(_COMPLEMENT) if negative else stored[1:]
    digits = tuple(map(int, text[_EXPONENT_DIGITS:]))
    adjusted = int(text[:_EXPONENT_DIGITS]) - _BIAS
    return Decimal((int(negative), digits, adjusted - len(digits) + 1))
