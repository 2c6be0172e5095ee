"""Bounds that a threshold implies for cardinalities (docs/papers/pprl.md, 2.2).

Thresholds are fractions and all comparisons use integers: in floating point ``t / (1 + t) * n`` is
one too high often enough to lose pairs. The tables are built once; kernels only look up values.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from spark_jobs.linkage.private.vectors import Numbers

__all__ = ["ThresholdTables", "min_overlap", "prefix_length"]


def min_overlap(left: int, right: int, threshold: Fraction) -> int:
    """Return the minimum number of bits shared by records of these cardinalities (formula 5)."""
    numerator, denominator = threshold.as_integer_ratio()
    return -(-numerator * (left + right) // (numerator + denominator))


def prefix_length(cardinality: int, threshold: Fraction) -> int:
    """Return the length of the prefix in set bits (formula 6, at most the cardinality)."""
    numerator, denominator = threshold.as_integer_ratio()
    return min(cardinality, -(-(denominator - numerator) * cardinality // denominator) + 1)


@dataclass(frozen=True, slots=True)
class ThresholdTables:
    """Tables for one threshold and one length of arrays.

    Attributes:
        overlap: Minimum overlap of two records, by the sum of their cardinalities.
        low: Minimum cardinality of a partner, by cardinality (formula 2).
        high: Maximum cardinality of a partner.
        prefix: Length of the prefix in set bits (formula 6).
    """

    overlap: Numbers
    low: Numbers
    high: Numbers
    prefix: Numbers

    @classmethod
    def of(cls, threshold: Fraction, bits: int, *, length: bool = True) -> ThresholdTables:
        """Build the tables for arrays of `bits` bits; without `length` all can be partners.

        Raises:
            ValueError: The threshold is not above 0 and at most 1.
        """
        if not 0 < threshold <= 1:
            raise ValueError("A threshold is above 0, and 1 at most.")
        sizes = range(bits + 1)
        low = [-(-threshold.numerator * n // threshold.denominator) if length else 1 for n in sizes]
        high = [n * threshold.denominator // threshold.numerator if length else bits for n in sizes]
        return cls(
            np.array([min_overlap(total, 0, threshold) for total in range(2 * bits + 1)]),
            np.array(low),
            np.minimum(np.array(high), bits),
            np.array([prefix_length(n, threshold) for n in sizes]),
        )

    def pairs_within(self, left: Numbers, right: Numbers) -> int:
        """Count the pairs that pass the length filter, by the records' cardinalities."""
        size = len(self.low)
        cumulative = np.concatenate(([0], np.cumsum(np.bincount(right, minlength=size))))
        left_counts = np.bincount(left, minlength=size)
        return int(
            left_counts @ (cumulative[self.high + 1] - cumulative[np.minimum(self.low, size)])
        )
