"""Texts of values, and their sounds, in the process of the worker: the same as Spark gives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["as_text", "has_text", "mapped", "soundex"]

_PLAIN: Final = (1e-3, 1e7)  # beyond, Java writes an exponent
_SOUNDS: Final = dict(zip("abcdefghijklmnopqrstuvwxyz", "01230127022455012623017202", strict=True))
_SILENT: Final = "7"
_VOWEL: Final = "0"
_SOUNDEX: Final = 4
_TYPES: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_float64,
    pa.types.is_null,
)


def has_text(type_: pa.DataType) -> bool:
    """Whether `as_text` takes values of a type; nested and binary ones are left to Spark."""
    if pa.types.is_timestamp(type_):
        return bool(type_.unit != "ns")
    return any(is_(type_) for is_ in _TYPES)


def as_text(values: pa.ChunkedArray) -> pa.Array:
    """Return a column of a type that `has_text` as texts."""
    column = values.combine_chunks()
    if pa.types.is_float64(column.type):
        return mapped(column, _number)
    if pa.types.is_timestamp(column.type):
        return mapped(column, _time)
    return column.cast(pa.string())


def mapped(
    values: pa.Array, function: Callable[[Any], Any], type_: pa.DataType | None = None
) -> pa.Array:
    """Apply a function to every value; it is called once for each distinct one, never for null."""
    encoded = values.dictionary_encode()
    results = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, type_ or pa.string()).take(encoded.indices)


def soundex(text: str) -> str | None:
    """Return the American Soundex code of a text's letters from a to z; None: it has none.

    H and w do not divide equal sounds, vowels do.
    """
    letters = [letter for letter in text if letter in _SOUNDS]
    if not letters:
        return None
    first, *others = (_SOUNDS[letter] for letter in letters)
    heard = [first, *(one for one in others if one != _SILENT)]
    codes = [one for before, one in pairwise(heard) if one not in {before, _VOWEL}]
    return (letters[0].upper() + "".join(codes)).ljust(_SOUNDEX, "0")[:_SOUNDEX]


def _number(value: float) -> str:
    if not np.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    low, high = _PLAIN
    if value == 0 or low <= abs(value) < high:
        return np.format_float_positional(value, unique=True, trim="0")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    figures = "".join(map(str, digits))
    power = int(exponent) + len(figures) - 1
    return f"{'-' * sign}{figures[0]}.{figures[1:] or '0'}E{power}"


def _time(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text
