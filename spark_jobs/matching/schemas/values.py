"""Evidence of values: whether two columns hold values of one kind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_jobs.matching.schemas.elements import Element
from spark_jobs.matching.schemas.profiles import ColumnProfile

__all__ = ["ValueEvidence", "ValueWeights", "value_evidence"]

_OVERLAP: Final = 1.2
_COMMON: Final = 3.0
_ENOUGH: Final = 20.0
"""Bits of texts in common that are as good as any more: numbers, and yes and no, are in common
by chance."""
_SHAPES: Final = 4.0
_NUMBERS: Final = -3.5
_LENGTHS: Final = -4.5
_QUANTILES: Final = -0.5
_EMPTY: Final = 3.0
"""Bits if neither column has values, or if nothing but equal types is known."""
_LEAST: Final = 0.1
"""Bits of a value that all columns have."""
_STRONG: Final = 0.3


@dataclass(frozen=True, slots=True)
class ValueEvidence:
    """What values say, in bits before the prior is subtracted; see `fields`."""

    bits: float
    reasons: tuple[str, ...] = ()


class ValueWeights:
    """How much values, and words of values, say: the less, the more columns have them.

    Args:
        profiles: Of the columns of both tables.
    """

    def __init__(self, profiles: Sequence[ColumnProfile]) -> None:
        values = Counter(value for each in profiles for value in each.values)
        words = Counter(word for each in profiles for word in each.words)
        self._values, self._words = (_bits(each, len(profiles)) for each in (values, words))
        self._prepared = {id(each): self._weighed(each) for each in profiles}

    def _weighed(self, profile: ColumnProfile) -> _Weighed:
        words = {word: share * self._words[word] for word, share in profile.words.items()}
        size = math.sqrt(sum(weight * weight for weight in words.values()))
        return _Weighed(self.total(profile.values), words, size)

    def total(self, values: Iterable[str]) -> float:
        """Return the bits of values together."""
        return sum(self._values[value] for value in sorted(values))

    def of(self, profile: ColumnProfile) -> _Weighed:
        """Return what was computed once for one of the columns."""
        return self._prepared[id(profile)]


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A column with weights.

    Attributes:
        total: Bits of its values.
        words: Its words by their share, times their bits.
        size: The Euclidean length of these.
    """

    total: float
    words: Mapping[str, float]
    size: float


def _bits(counted: Mapping[str, int], columns: int) -> dict[str, float]:
    return {text: math.log2(columns / count) + _LEAST for text, count in counted.items()}


def value_evidence(left: Element, right: Element, weights: ValueWeights) -> ValueEvidence:
    """Compare the values of two elements, or their types if one has none to look at."""
    one, other = left.profile, right.profile
    if one is None or other is None:
        return _types(left, right)
    if not one.present and not other.present:
        return ValueEvidence(_EMPTY, ("neither has values",))
    if not one.present or not other.present:
        return ValueEvidence(0.0)
    common, share = _overlap(one, other, weights)
    overlap = min(1.0, max(share, _cosine(one, other, weights)))
    shapes = _common(one.shapes, other.shapes)
    texts = 1 - max(one.numbers, other.numbers)
    bits = (
        _OVERLAP * overlap
        + _COMMON * texts * share * min(1.0, common / _ENOUGH)
        + _SHAPES * shapes
        + _NUMBERS * abs(one.numbers - other.numbers)
        + _LENGTHS * _relative_distance(one, other)
        + _QUANTILES * _distance(one, other)
    )
    reasons = []
    if overlap >= _STRONG:
        reasons.append(f"{overlap:.0%} of the values or their words occur on both sides")
    if shapes >= _STRONG:
        reasons.append(f"{shapes:.0%} of the values have the same shapes")
    return ValueEvidence(bits, tuple(reasons))


def _types(left: Element, right: Element) -> ValueEvidence:
    if not left.type or not right.type or left.type == right.type:
        reasons = (f"both are of the type {left.type}",) if left.type == right.type else ()
        return ValueEvidence(_EMPTY, reasons if left.type else ())
    if {left.type, right.type} == {"integer", "number"} or "string" in {left.type, right.type}:
        return ValueEvidence(0.0)  # texts may hold anything: CSV has no other type
    return ValueEvidence(-_EMPTY)


def _overlap(
    one: ColumnProfile, other: ColumnProfile, weights: ValueWeights
) -> tuple[float, float]:
    """Return the bits of the values in common, and their share of the smaller column's."""
    common = weights.total(one.values.keys() & other.values.keys())
    return common, min(1.0, common / min(weights.of(one).total, weights.of(other).total))


def _cosine(one: ColumnProfile, other: ColumnProfile, weights: ValueWeights) -> float:
    left, right = weights.of(one), weights.of(other)
    both = sorted(left.words.keys() & right.words.keys())
    sizes = left.size * right.size
    return sum(left.words[word] * right.words[word] for word in both) / sizes if sizes else 0.0


def _common(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(min(share, other[shape]) for shape, share in one.items() if shape in other)


def _relative_distance(one: ColumnProfile, other: ColumnProfile) -> float:
    """How far lengths are apart, relative to them, from 0 to 2."""
    mean = 1 + float(np.mean(one.lengths + other.lengths)) / 2
    return float(np.mean(np.abs(one.lengths - other.lengths))) / mean


def _distance(one: ColumnProfile, other: ColumnProfile) -> float:
    """How far numbers are apart, by their logarithms."""
    if not len(one.quantiles) or not len(other.quantiles):
        return 0.0
    return float(np.mean(np.abs(one.quantiles - other.quantiles)))
