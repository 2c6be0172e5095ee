"""From bits to confidence: probabilities that keep their promise, and how far they do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

__all__ = ["Calibration", "calibration_error"]

_PRECISION: Final = 2.0
"""How strongly the curve is held to what it is without feedback."""
_STEPS: Final = 50
_BINS: Final = 10
_MOST: Final = 500.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic curve over bits.

    Attributes:
        slope: How far bits are to be believed; 1 as they are.
        offset: Bits that are added.
    """

    slope: float = 1.0
    offset: float = 0.0

    def confidence(self, bits: float) -> float:
        """Return the probability that a pair with these bits is right."""
        return float(1 / (1 + 2.0 ** -max(-_MOST, min(self.slope * bits + self.offset, _MOST))))

    @classmethod
    def learned(cls, decided: Iterable[tuple[float, bool]]) -> Calibration:
        """Fit the curve to bits of pairs and whether they are right, by Newton's method.

        The more decisions there are, the further it may leave the curve without them.
        """
        points = sorted(decided)
        if not points:
            return cls()
        design = np.array([(bits, 1.0) for bits, _ in points])
        truth = np.array([right for _, right in points], dtype=np.float64)
        prior = np.array([1.0, 0.0])
        weights = prior.copy()
        natural = np.log(2.0)
        for _ in range(_STEPS):
            scores = np.clip(design @ weights * natural, -_MOST, _MOST)
            expected = 1 / (1 + np.exp(-scores))
            gradient = natural * design.T @ (expected - truth) + _PRECISION * (weights - prior)
            spread = expected * (1 - expected) * natural**2
            curvature = (design.T * spread) @ design + _PRECISION * np.eye(2)
            weights = weights - np.linalg.solve(curvature, gradient)
            weights[0] = max(weights[0], 0.05)  # more evidence never means less confidence
        return cls(float(weights[0]), float(weights[1]))


def calibration_error(confidences: Sequence[float], right: Sequence[bool]) -> float:
    """Return the expected calibration error, from 0 to 1, over ten bins of equal width."""
    if not confidences:
        return 0.0
    stated, truth = np.asarray(confidences), np.asarray(right, dtype=np.float64)
    bins = np.minimum((stated * _BINS).astype(int), _BINS - 1)
    gaps = (
        abs(float(stated[bins == one].sum() - truth[bins == one].sum())) for one in range(_BINS)
    )
    return sum(gaps) / len(stated)
