"""What a threshold requires of cardinalities (docs/papers/pprl.md, 2.2).

Thresholds are fractions and all comparisons use integers: in floating point ``t / (1 + t) * n`` is
one too high often enough to lose pairs. The tables are made once; kernels only look values up.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from spark_jobs.linkage.private.vectors import Numbers

__all__ = ["ThresholdTables", "least_overlap", "prefix_length"]


def least_overlap(left: int, right: int, threshold: Fraction) -> int:
    """Return the least number of bits that records of these cardinalities share (formula 5)."""
    part, whole = threshold.as_integer_ratio()
    return -(-part * (left + right) // (part + whole))


def prefix_length(cardinality: int, threshold: Fraction) -> int:
    """Return the length of the prefix in set bits (formula 6, never more than there are)."""
    part, whole = threshold.as_integer_ratio()
    return min(cardinality, -(-(whole - part) * cardinality // whole) + 1)


@dataclass(frozen=True, slots=True)
class ThresholdTables:
    """Tables for one threshold and one length of arrays.

    Attributes:
        overlap: Least overlap of two records, by the sum of their cardinalities.
        low: Least cardinality of a partner, by cardinality (formula 2).
        high: Greatest cardinality of a partner.
        prefix: Length of the prefix in set bits (formula 6).
    """

    overlap: Numbers
    low: Numbers
    high: Numbers
    prefix: Numbers

    @classmethod
    def of(cls, threshold: Fraction, bits: int, *, length: bool = True) -> ThresholdTables:
        """Make the tables for arrays of `bits` bits; without `length` all may be partners.

        Raises:
            ValueError: The threshold is not above 0 and at most 1.
        """
        if not 0 < threshold <= 1:
            raise ValueError("A threshold is above 0, and 1 at most.")
        sizes = range(bits + 1)
        low = [-(-threshold.numerator * n // threshold.denominator) if length else 1 for n in sizes]
        high = [n * threshold.denominator // threshold.numerator if length else bits for n in sizes]
        return cls(
            np.array([least_overlap(total, 0, threshold) for total in range(2 * bits + 1)]),
            np.array(low),
            np.minimum(np.array(high), bits),
            np.array([prefix_length(n, threshold) for n in sizes]),
        )

    def pairs_within(self, left: Numbers, right: Numbers) -> int:
        """Count the pairs that the length filter leaves, by the records' cardinalities."""
        known = len(self.low)
        up_to = np.concatenate(([0], np.cumsum(np.bincount(right, minlength=known))))
        here = np.bincount(left, minlength=known)
        return int(here @ (up_to[self.high + 1] - up_to[np.minimum(self.low, known)]))
