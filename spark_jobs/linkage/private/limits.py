"""What a threshold asks of cardinalities, as tables of whole numbers (docs/papers/pprl.md, 2.2).

The tables are made with fractions, once; kernels only look things up, so nothing is ever rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.private.reference import least_overlap, prefix_length

__all__ = ["ThresholdTables"]

Numbers: TypeAlias = NDArray[np.int64]


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
        """Make the tables.

        Args:
            threshold: Least Tanimoto similarity.
            bits: Length of the arrays.
            length: Whether cardinalities limit partners at all.

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
        """Count the pairs that the length filter leaves.

        Args:
            left: Cardinalities of some records.
            right: Those of others.
        """
        known = len(self.low)
        up_to = np.concatenate(([0], np.cumsum(np.bincount(right, minlength=known))))
        here = np.bincount(left, minlength=known)
        return int(here @ (up_to[self.high + 1] - up_to[np.minimum(self.low, known)]))
