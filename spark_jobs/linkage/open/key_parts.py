"""Derives parts of blocking keys, and days, from values."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.rules import KeyPart, Take
from spark_jobs.texts import map_texts, soundex

__all__ = ["as_days", "part_of"]

_NOT_DIGITS: Final = re.compile("[^0-9]")
_YEAR_DIGITS: Final = 4
_DATE_DIGITS: Final = 8
_MIN_DATE_DIGITS: Final = 7  # a day without a leading zero


def part_of(part: KeyPart, values: pa.Array) -> pa.Array:
    """Return each normalised value's part of a key; null: none."""
    if part.take is Take.WHOLE:
        return values
    return map_texts(values, lambda value: _extract(part, value) or None)


def _extract(part: KeyPart, value: str) -> str | None:
    match part.take:
        case Take.PREFIX:
            return value[: part.length]
        case Take.SUFFIX:
            return value[-part.length :]
        case Take.SOUNDEX:
            return soundex(value)
        case Take.WORD:
            return _word(value.split(" "), part.length)
        case Take.SORTED:
            return " ".join(sorted(value.split(" ")))
    digits = _NOT_DIGITS.sub("", value)
    if part.take is Take.YEAR:
        return digits[:_YEAR_DIGITS] if len(digits) >= _YEAR_DIGITS else None
    return digits[_YEAR_DIGITS:_DATE_DIGITS] if len(digits) >= _DATE_DIGITS else None


def _word(words: list[str], number: int) -> str | None:
    return words[number - (number > 0)] if abs(number) <= len(words) else None


def as_days(values: pa.Array) -> pa.Array:
    """Return the days since 1970 of yyyy-mm-dd or yyyymmdd, time ignored; null: not a date."""
    return map_texts(values, _days, pa.float64())


def _days(value: str) -> float | None:
    digits = _NOT_DIGITS.sub("", value)[:_DATE_DIGITS]
    if len(digits) < _MIN_DATE_DIGITS:
        return None
    try:
        day = np.datetime64(f"{digits[:4]}-{digits[4:6]}-{digits[6:]:0>2}")
    except ValueError:
        return None
    return float(day.astype(np.int64))
