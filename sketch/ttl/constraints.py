"""Bounds that lives have to keep, whatever the rates say; docs/papers/cache_sketch.md."""

from __future__ import annotations

from dataclasses import dataclass

from sketch.ttl.rates import ClassRates

__all__ = ["Constraints"]


@dataclass(frozen=True, slots=True)
class Constraints:
    """Both constraints of CATE, each for one class.

    Attributes:
        false_positives: The filter's false positive rate should not exceed this; None: no bound.
        invalidations_per_s: No more copies should be invalidated in a second, at all replicas;
            None: no bound.
        severity: How strongly a violation acts (the paper's a).
    """

    false_positives: float | None = None
    invalidations_per_s: float | None = None
    severity: float = 1.0

    def violation(self, rates: ClassRates, now_s: float) -> float:
        """Return the degree of violation (the paper's f): 0 for none, near 1 for an extreme one."""
        worst = 0.0
        if self.false_positives is not None:
            worst = _excess(rates.false_positives, self.false_positives)
        if self.invalidations_per_s is not None:
            now = rates.invalidations_per_s(now_s)
            worst = max(worst, _excess(now, self.invalidations_per_s))
        return worst

    def penalty(self, violation: float) -> float:
        """Return by what a probability is multiplied: (1 - f)^a."""
        return float((1 - violation) ** self.severity)


def _excess(measured: float, limit: float) -> float:
    return 1 - limit / measured if measured > limit else 0.0
