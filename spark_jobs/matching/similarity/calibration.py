"""Calibration error: whether one measure dominates another in their aggregate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from math import atan, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["calibration_error", "calibration_report", "rank_correlation"]


def calibration_error(one: float, other: float) -> float:
    """Compare the rank correlations of two measures with their aggregate.

    Returns:
        0 if they contribute equally, positive if the first dominates, negative if the other does.
        A measure with a correlation of 0 or less contributes nothing: 1 or -1, 0 if neither does.
    """
    one, other = max(0.0, one), max(0.0, other)
    if not one:
        return -1.0 if other else 0.0
    return 1 - 4 / pi * atan(other / one)


def rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return Spearman's correlation; 0 if one is constant."""
    x, y = _ranks(one), _ranks(other)
    spread = float(np.std(x) * np.std(y))
    return float(np.mean((x - x.mean()) * (y - y.mean()))) / spread if spread else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank values; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]


def calibration_report(
    labels: Sequence[str], terms: NDArray[np.float64], weights: Sequence[float]
) -> Mapping[str, Any]:
    """Report each measure's correlation with the sum, and its error against each other measure.

    Returns:
        For each label ``correlation``, ``weight`` and ``errors`` by the label of the other measure.
    """
    total = terms @ np.asarray(weights)
    shares = [rank_correlation(terms[:, at], total) for at in range(len(labels))]
    report = {
        label: {"correlation": round(share, 3), "weight": weight, "errors": {}}
        for label, share, weight in zip(labels, shares, weights, strict=True)
    }
    for (one, x), (other, y) in permutations(zip(labels, shares, strict=True), 2):
        errors: Any = report[one]["errors"]
        errors[other] = round(calibration_error(x, y), 3)
    return report
