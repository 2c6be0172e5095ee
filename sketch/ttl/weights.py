"""What an estimator is to spare; docs/papers/cache_sketch.md, "TTL estimators"."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

__all__ = ["Weights"]


@dataclass(frozen=True, slots=True)
class Weights:
    """What each event costs, in units of one's choice.

    Attributes:
        invalidation: A write to something that caches hold: a purge, an entry of the filter.
        stale: A read that is answered with an overwritten version.
        miss: A read that the origin has to answer, revalidations included.
        false_positives: The filter's false positive rate: all reads that it touches wrongly.

    Raises:
        ValueError: One of them is negative or not finite, or misses and invalidations cost nothing.
    """

    invalidation: float = 0.2
    stale: float = 1.0
    miss: float = 1.0
    false_positives: float = 1.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(weight) and weight >= 0 for weight in astuple(self)):
            raise ValueError("a weight is a number that is not negative")
        if self.miss == 0 or self.invalidation == 0:
            raise ValueError("misses and invalidations cost something")

    @property
    def miss_per_invalidation(self) -> float:
        """How many invalidations one miss is worth."""
        return self.miss / self.invalidation

    def cost(
        self, invalidations: int, stale: int, misses: int, accesses: int, false_positives: float
    ) -> float:
        """Return the cost of each access, the paper's cost function.

        Args:
            invalidations: Writes to something that caches held.
            stale: Reads of overwritten versions.
            misses: Reads that the origin answered.
            accesses: Reads and writes.
            false_positives: Mean false positive rate of the filter.
        """
        counted = self.invalidation * invalidations + self.stale * stale + self.miss * misses
        return counted / max(accesses, 1) + self.false_positives * false_positives
