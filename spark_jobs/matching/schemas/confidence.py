"""Converts bits to calibrated confidences, and measures the calibration error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

__all__ = ["Calibration", "calibration_error"]

_PRECISION: Final = 2.0
"""The weight of the prior, the curve without feedback."""
_STEPS: Final = 50
_BINS: Final = 10
_MAX_LOG_ODDS: Final = 500.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic curve over bits.

    Attributes:
        slope: The factor of bits; 1 by default.
        offset: Bits added.
    """

    slope: float = 1.0
    offset: float = 0.0

    def confidence(self, bits: float) -> float:
        """Return the probability that a pair with these bits is right."""
        return float(
            1
            / (1 + 2.0 ** -max(-_MAX_LOG_ODDS, min(self.slope * bits + self.offset, _MAX_LOG_ODDS)))
        )

    @classmethod
    def fit(cls, decisions: Iterable[tuple[float, bool]]) -> Calibration:
        """Fit the curve to bits of pairs and whether they are right, by Newton's method.

        With more decisions, the curve can deviate more from the prior.
        """
        points = sorted(decisions)
        if not points:
            return cls()
        design = np.array([(bits, 1.0) for bits, _ in points])
        truth = np.array([right for _, right in points], dtype=np.float64)
        prior = np.array([1.0, 0.0])
        weights = prior.copy()
        natural = np.log(2.0)
        for _ in range(_STEPS):
            scores = np.clip(design @ weights * natural, -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
            probability = 1 / (1 + np.exp(-scores))
            gradient = natural * design.T @ (probability - truth) + _PRECISION * (weights - prior)
            curvature_weights = probability * (1 - probability) * natural**2
            curvature = (design.T * curvature_weights) @ design + _PRECISION * np.eye(2)
            weights = weights - np.linalg.solve(curvature, gradient)
            weights[0] = max(weights[0], 0.05)  # more evidence never lowers confidence
        return cls(float(weights[0]), float(weights[1]))


def calibration_error(confidences: Sequence[float], right: Sequence[bool]) -> float:
    """Return the expected calibration error, from 0 to 1, over ten bins of equal width."""
    if not confidences:
        return 0.0
    predicted, truth = np.asarray(confidences), np.asarray(right, dtype=np.float64)
    bins = np.minimum((predicted * _BINS).astype(int), _BINS - 1)
    gaps = (
        abs(float(predicted[bins == bin_].sum() - truth[bins == bin_].sum()))
        for bin_ in range(_BINS)
    )
    return sum(gaps) / len(predicted)
