"""Learns weights and threshold from labelled pairs, by a linear support vector machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.runner.port import InputUnfit

__all__ = ["Learned", "learned"]

_LEAST_OF_EACH: Final = 2


@dataclass(frozen=True, slots=True)
class Learned:
    """What a specification would say.

    Attributes:
        weights: One for each measure; with `relational` they sum up to 1. A measure that speaks
            against matches, or not for them, has 0.
        agreement: The share of labels that weights and threshold reproduce, without relations.
    """

    weights: tuple[float, ...]
    threshold: float
    agreement: float
    labels: int


def learned(terms: NDArray[np.float64], matches: Sequence[bool], relational: float) -> Learned:
    """Learn from the terms of pairs, and whether each is a match.

    The threshold is that of pairs whose relations agree as much as their attributes do, so it is
    below 1 - `relational`.

    Raises:
        InputUnfit: There are too few of either, or no measure tells them apart.
    """
    labels = np.asarray(matches, dtype=bool)
    if min(labels.sum(), (~labels).sum()) < _LEAST_OF_EACH:
        raise InputUnfit(
            f"labels: {_LEAST_OF_EACH} matches and {_LEAST_OF_EACH} others are expected."
        )
    coefficients, intercept = _fitted(terms, labels)
    total = coefficients.sum()
    share = 1 - relational
    weights = share * coefficients / total
    threshold = float(np.clip(-intercept / total, 0, 0.999)) * share
    agreement = float(np.mean((terms @ weights > threshold) == labels))
    return Learned(tuple(map(float, weights)), threshold, agreement, len(labels))


def _fitted(
    terms: NDArray[np.float64], labels: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], float]:
    """Fit without the measures that speak against matches, until none does."""
    from sklearn.svm import LinearSVC  # noqa: PLC0415 - extra matching

    kept = np.ones(terms.shape[1], dtype=bool)
    while kept.any():
        machine: Any = LinearSVC(C=10.0, dual=False, class_weight="balanced")
        machine.fit(terms[:, kept], labels)
        found = np.zeros(len(kept))
        found[kept] = machine.coef_[0]
        if (found[kept] > 0).all():
            return found, float(machine.intercept_[0])
        kept = found > 0
    raise InputUnfit("labels: No measure is greater for matches than for others.")
