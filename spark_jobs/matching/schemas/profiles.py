"""Profiles of columns, from a bounded sample of their values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ColumnProfile", "profile_of"]

QUANTILES: Final = np.linspace(0.05, 0.95, 19)
_MAX_SHAPES: Final = 50
_MAX_WORDS: Final = 1_000
_NUMBER: Final = re.compile(r"[+-]?\d{1,30}([.,]\d{1,30})?([eE][+-]?\d{1,2})?")
_WORD: Final = re.compile(r"[^\W_]+")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_DIGITS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """The profile of a column's values. Shares are of the rows with a value.

    Attributes:
        rows: Rows of the table.
        present: Rows with a value.
        values: A sample of distinct values, and the count of each.
        numbers: Share of numbers.
        words: Share of the rows whose value has the word.
        shapes: Share of each shape, such as ``A-9`` for ``AB-12``.
        quantiles: Quantiles of the numbers; empty without numbers.
        lengths: Quantiles of the number of characters; empty without values.
    """

    rows: int
    present: int
    values: Mapping[str, int]
    numbers: float
    words: Mapping[str, float]
    shapes: Mapping[str, float]
    quantiles: NDArray[np.float64]
    lengths: NDArray[np.float64]


def profile_of(rows: int, present: int, values: Mapping[str, int]) -> ColumnProfile:
    """Profile a column by distinct values and their counts."""
    texts = list(values)
    counts = np.array([values[text] for text in texts], dtype=np.float64)
    total = float(counts.sum())
    is_number = np.array([_NUMBER.fullmatch(text) is not None for text in texts], dtype=bool)
    numbers = [_number(text) for text, is_ in zip(texts, is_number, strict=True) if is_]
    return ColumnProfile(
        rows=rows,
        present=present,
        values=values,
        numbers=float(counts[is_number].sum()) / total if total else 0.0,
        words=_shares(_words(values), total, _MAX_WORDS),
        shapes=_shares(_shapes(values), total, _MAX_SHAPES),
        quantiles=_quantiles(numbers, counts[is_number]),
        lengths=_quantiles([len(text) for text in texts], counts),
    )


def _number(text: str) -> float:
    value = float(text.replace(",", "."))
    return math.copysign(math.log1p(abs(value)), value)  # makes scales comparable


def _quantiles(values: list[float] | list[int], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    if not values:
        return np.empty(0)
    array = np.asarray(values, dtype=np.float64)
    order = np.argsort(array, kind="stable")
    cumulative = np.cumsum(counts[order])
    positions = np.searchsorted(cumulative, QUANTILES * cumulative[-1])
    quantiles: NDArray[np.float64] = array[order][np.minimum(positions, len(array) - 1)]
    return quantiles


def _words(values: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text, count in values.items():
        for word in set(_WORD.findall(text.casefold())):
            counts[word] += count
    return counts


def _shapes(values: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text, count in values.items():
        counts[_shape(text)] += count
    return counts


@lru_cache(maxsize=65_536)
def _shape(text: str) -> str:
    letters = _LETTERS.sub(_kind, text[:40])
    return _DIGITS.sub("9", " ".join(letters.split()))[:24]


def _kind(letters: re.Match[str]) -> str:
    word = letters[0]
    return "a" if word.islower() else "A" if word.isupper() else "Aa"


def _shares(counts: Counter[str], total: float, limit: int) -> dict[str, float]:
    # Ties are broken by the text, so the same values give the same profile.
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return {text: count / total for text, count in frequent}
