"""Evidence of values: whether two columns have values of the same kind."""

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

_OVERLAP_WEIGHT: Final = 1.2
_COMMON_WEIGHT: Final = 3.0
_FULL_EVIDENCE_BITS: Final = 20.0
"""Bits of shared texts that count as full evidence; numbers, and yes and no, are shared by
chance."""
_SHAPES_WEIGHT: Final = 4.0
_NUMBERS_WEIGHT: Final = -3.5
_LENGTHS_WEIGHT: Final = -4.5
_QUANTILES_WEIGHT: Final = -0.5
_EMPTY_BITS: Final = 3.0
"""Bits if neither column has values, or if only equal types are known."""
_MIN_BITS: Final = 0.1
"""Minimum bits of a value: those of a value in all columns."""
_MIN_REASON_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True)
class ValueEvidence:
    """The evidence of values, in bits before the prior is subtracted; see `fields`."""

    bits: float
    reasons: tuple[str, ...] = ()


class ValueWeights:
    """Bits of values, and of words of values; fewer the more columns have them.

    Args:
        profiles: The profiles of the columns of both tables.
    """

    def __init__(self, profiles: Sequence[ColumnProfile]) -> None:
        values = Counter(value for profile in profiles for value in profile.values)
        words = Counter(word for profile in profiles for word in profile.words)
        self._values, self._words = (_bits(counts, len(profiles)) for counts in (values, words))
        self._columns = {id(profile): self._weigh(profile) for profile in profiles}

    def _weigh(self, profile: ColumnProfile) -> _WeightedColumn:
        words = {word: share * self._words[word] for word, share in profile.words.items()}
        size = math.sqrt(sum(weight * weight for weight in words.values()))
        return _WeightedColumn(self.total(profile.values), words, size)

    def total(self, values: Iterable[str]) -> float:
        """Return the sum of the bits of values."""
        return sum(self._values[value] for value in sorted(values))

    def of(self, profile: ColumnProfile) -> _WeightedColumn:
        """Return the precomputed weights of a column."""
        return self._columns[id(profile)]


@dataclass(frozen=True, slots=True)
class _WeightedColumn:
    """A column with weights.

    Attributes:
        total: Bits of its values.
        words: The share of each word, times its bits.
        size: The Euclidean norm of these.
    """

    total: float
    words: Mapping[str, float]
    size: float


def _bits(counts: Mapping[str, int], columns: int) -> dict[str, float]:
    return {text: math.log2(columns / count) + _MIN_BITS for text, count in counts.items()}


def value_evidence(left: Element, right: Element, weights: ValueWeights) -> ValueEvidence:
    """Compare the values of two elements, or their types if one has no values available."""
    one, other = left.profile, right.profile
    if one is None or other is None:
        return _types(left, right)
    if not one.present and not other.present:
        return ValueEvidence(_EMPTY_BITS, ("neither has values",))
    if not one.present or not other.present:
        return ValueEvidence(0.0)
    common, share = _overlap(one, other, weights)
    overlap = min(1.0, max(share, _cosine(one, other, weights)))
    shapes = _common(one.shapes, other.shapes)
    texts = 1 - max(one.numbers, other.numbers)
    bits = (
        _OVERLAP_WEIGHT * overlap
        + _COMMON_WEIGHT * texts * share * min(1.0, common / _FULL_EVIDENCE_BITS)
        + _SHAPES_WEIGHT * shapes
        + _NUMBERS_WEIGHT * abs(one.numbers - other.numbers)
        + _LENGTHS_WEIGHT * _relative_distance(one, other)
        + _QUANTILES_WEIGHT * _distance(one, other)
    )
    reasons = []
    if overlap >= _MIN_REASON_SHARE:
        reasons.append(f"{overlap:.0%} of the values or their words occur on both sides")
    if shapes >= _MIN_REASON_SHARE:
        reasons.append(f"{shapes:.0%} of the values have the same shapes")
    return ValueEvidence(bits, tuple(reasons))


def _types(left: Element, right: Element) -> ValueEvidence:
    if not left.type or not right.type or left.type == right.type:
        reasons = (f"both are of the type {left.type}",) if left.type == right.type else ()
        return ValueEvidence(_EMPTY_BITS, reasons if left.type else ())
    if {left.type, right.type} == {"integer", "number"} or "string" in {left.type, right.type}:
        return ValueEvidence(0.0)  # texts can hold anything: CSV has no other type
    return ValueEvidence(-_EMPTY_BITS)


def _overlap(
    one: ColumnProfile, other: ColumnProfile, weights: ValueWeights
) -> tuple[float, float]:
    """Return the bits of the shared values, and their share of the smaller column's bits."""
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
    """Return the relative distance of lengths, from 0 to 2."""
    mean = 1 + float(np.mean(one.lengths + other.lengths)) / 2
    return float(np.mean(np.abs(one.lengths - other.lengths))) / mean


def _distance(one: ColumnProfile, other: ColumnProfile) -> float:
    """Return the distance of numbers, by their logarithms."""
    if not len(one.quantiles) or not len(other.quantiles):
        return 0.0
    return float(np.mean(np.abs(one.quantiles - other.quantiles)))
