"""Texts of values, and Soundex codes, in the worker's process: the same as on Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["as_text", "has_text", "map_texts", "soundex"]

_PLAIN_RANGE: Final = (1e-3, 1e7)  # outside, Java writes an exponent
_SOUNDS: Final = dict(zip("abcdefghijklmnopqrstuvwxyz", "01230127022455012623017202", strict=True))
_SILENT: Final = "7"
_VOWEL: Final = "0"
_SOUNDEX_LENGTH: Final = 4
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
    """Whether `as_text` accepts values of a type; nested and binary ones need Spark."""
    if pa.types.is_timestamp(type_):
        return bool(type_.unit != "ns")
    return any(is_(type_) for is_ in _TYPES)


def as_text(values: pa.ChunkedArray) -> pa.Array:
    """Return a column as texts; its type must satisfy `has_text`."""
    column = values.combine_chunks()
    if pa.types.is_float64(column.type):
        return map_texts(column, _number)
    if pa.types.is_timestamp(column.type):
        return map_texts(column, _time)
    return column.cast(pa.string())


def map_texts(
    values: pa.Array, function: Callable[[Any], Any], type_: pa.DataType | None = None
) -> pa.Array:
    """Apply a function to every value; it is called once per distinct value, never for null."""
    encoded = values.dictionary_encode()
    results = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, type_ or pa.string()).take(encoded.indices)


def soundex(text: str) -> str | None:
    """Return the American Soundex code of a text's letters from a to z; None: it has none.

    H and w do not separate equal sounds, vowels do.
    """
    letters = [letter for letter in text if letter in _SOUNDS]
    if not letters:
        return None
    first, *following = (_SOUNDS[letter] for letter in letters)
    sounds = [first, *(sound for sound in following if sound != _SILENT)]
    codes = [sound for before, sound in pairwise(sounds) if sound not in {before, _VOWEL}]
    return (letters[0].upper() + "".join(codes)).ljust(_SOUNDEX_LENGTH, "0")[:_SOUNDEX_LENGTH]


def _number(value: float) -> str:
    if not np.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    low, high = _PLAIN_RANGE
    if value == 0 or low <= abs(value) < high:
        return np.format_float_positional(value, unique=True, trim="0")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    figures = "".join(map(str, digits))
    power = int(exponent) + len(figures) - 1
    return f"{'-' * sign}{figures[0]}.{figures[1:] or '0'}E{power}"


def _time(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text
