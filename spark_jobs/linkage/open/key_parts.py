"""What is made of values for keys and measures: parts and days."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.rules import KeyPart, Take
from spark_jobs.texts import mapped, soundex

__all__ = ["as_days", "part_of"]

_NOT_DIGITS: Final = re.compile("[^0-9]")
_YEAR: Final = 4
_DATE: Final = 8
_SHORTEST_DATE: Final = 7  # of a day without its zero


def part_of(part: KeyPart, values: pa.Array) -> pa.Array:
    """Return the part of a key that each normalised value gives; null: none."""
    if part.take is Take.WHOLE:
        return values
    return mapped(values, lambda value: _taken(part, value) or None)


def _taken(part: KeyPart, value: str) -> str | None:
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
        return digits[:_YEAR] if len(digits) >= _YEAR else None
    return digits[_YEAR:_DATE] if len(digits) >= _DATE else None


def _word(words: list[str], number: int) -> str | None:
    return words[number - (number > 0)] if abs(number) <= len(words) else None


def as_days(values: pa.Array) -> pa.Array:
    """Days since 1970 of yyyy-mm-dd or yyyymmdd, with or without a time; null: it is no date."""
    return mapped(values, _days, pa.float64())


def _days(value: str) -> float | None:
    digits = _NOT_DIGITS.sub("", value)[:_DATE]
    if len(digits) < _SHORTEST_DATE:
        return None
    try:
        day = np.datetime64(f"{digits[:4]}-{digits[4:6]}-{digits[6:]:0>2}")
    except ValueError:
        return None
    return float(day.astype(np.int64))
