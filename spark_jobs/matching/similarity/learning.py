"""Learns weights and a threshold from labelled pairs, by a linear support vector machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.runner.port import InputUnfit

__all__ = ["LearnedWeights", "fit_weights"]

_MIN_LABELS: Final = 2


@dataclass(frozen=True, slots=True)
class LearnedWeights:
    """Learned members of a specification.

    Attributes:
        weights: One per measure; with `relational` they add up to 1. A measure that is no evidence
            for matches has 0.
        agreement: The share of labels that weights and threshold reproduce, without relations.
    """

    weights: tuple[float, ...]
    threshold: float
    agreement: float
    labels: int


def fit_weights(
    terms: NDArray[np.float64], matches: Sequence[bool], relational: float
) -> LearnedWeights:
    """Learn from the terms of pairs, and whether each is a match.

    The threshold assumes that relations agree as much as attributes, so it is below 1 -
    `relational`.

    Raises:
        InputUnfit: There are too few matches or non-matches, or no measure separates them.
    """
    labels = np.asarray(matches, dtype=bool)
    if min(labels.sum(), (~labels).sum()) < _MIN_LABELS:
        raise InputUnfit(f"labels: {_MIN_LABELS} matches and {_MIN_LABELS} others are expected.")
    coefficients, intercept = _fit(terms, labels)
    total = coefficients.sum()
    share = 1 - relational
    weights = share * coefficients / total
    threshold = float(np.clip(-intercept / total, 0, 0.999)) * share
    agreement = float(np.mean((terms @ weights > threshold) == labels))
    return LearnedWeights(tuple(map(float, weights)), threshold, agreement, len(labels))


def _fit(
    terms: NDArray[np.float64], labels: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], float]:
    """Fit repeatedly without measures of negative weight, until none is left."""
    from sklearn.svm import LinearSVC  # noqa: PLC0415 - extra matching

    used = np.ones(terms.shape[1], dtype=bool)
    while used.any():
        machine: Any = LinearSVC(C=10.0, dual=False, class_weight="balanced")
        machine.fit(terms[:, used], labels)
        coefficients = np.zeros(len(used))
        coefficients[used] = machine.coef_[0]
        if (coefficients[used] > 0).all():
            return coefficients, float(machine.intercept_[0])
        used = coefficients > 0
    raise InputUnfit("labels: No measure is greater for matches than for others.")
