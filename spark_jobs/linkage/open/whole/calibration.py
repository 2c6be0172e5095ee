"""The probability that a pair is a match, without labels: by competition with decoys.

Once every record has its best partner, the remaining pairs are not matches. Assigned in the same
way, they give the *decoys*, which show the similarity and lead that pairs reach by chance. A
logistic regression fits the odds of a chosen pair against similar decoys. Among the pairs least
like matches, nearly all chosen pairs are wrong: their number per decoy estimates the wrong pairs
per decoy (as in the estimation of false discovery rates; Storey 2002).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.open.strings import Floats

__all__ = ["Calibration", "calibrate"]

_MAX_ROUNDS: Final = 50
_RIDGE: Final = 0.01
_TOLERANCE: Final = 1e-8
_LEAD_OFFSET: Final = 0.01
_LOWEST_SHARE: Final = 0.2
_MAX_LOG_ODDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration from chosen pairs and decoys.

    Attributes:
        weights: Weights of the constant, and of the logarithms of similarity and lead.
        wrong: Wrong pairs per decoy, in (0, 1].
        decoys: The number of decoys; a lower rate than one wrong pair for all is not detectable.
    """

    weights: Floats
    wrong: float
    decoys: int

    def bits(self, similarity: Floats, lead: Floats) -> Floats:
        """Return the log2 odds of a match for each pair."""
        chances = self.wrong * np.exp(-_log_odds(_inputs(similarity, lead), self.weights))
        # Clipped: no pair is certain, and pairs explained by chance are only improbable.
        chances = np.clip(chances, 1.0 / (self.decoys + 2.0), 1.0 - 1e-3)
        bits: Floats = np.log2(1.0 - chances) - np.log2(chances)
        return bits

    def to_json(self) -> dict[str, Any]:
        return {
            "weights": [float(f"{weight:.6g}") for weight in self.weights],
            "wrong_for_each_decoy": float(f"{self.wrong:.4g}"),
            "decoys": self.decoys,
        }


def calibrate(chosen: tuple[Floats, Floats], decoys: tuple[Floats, Floats]) -> Calibration:
    """Calibrate by the similarity and lead of chosen pairs, and of decoys."""
    chosen_inputs, decoy_inputs = _inputs(*chosen), _inputs(*decoys)
    inputs = np.concatenate([chosen_inputs, decoy_inputs])
    labels = np.repeat([1.0, 0.0], [len(chosen_inputs), len(decoy_inputs)])
    weights = _fit_weights(inputs, labels)
    return Calibration(
        weights, _wrong_per_decoy(_log_odds(inputs, weights), labels), len(decoy_inputs)
    )


def _inputs(similarity: Floats, lead: Floats) -> NDArray[np.float64]:
    return np.column_stack(
        [np.ones(len(similarity)), np.log(similarity + 1e-9), np.log(lead + _LEAD_OFFSET)]
    )


def _log_odds(inputs: NDArray[np.float64], weights: Floats) -> Floats:
    return np.clip(inputs @ weights, -_MAX_LOG_ODDS, _MAX_LOG_ODDS)


def _fit_weights(inputs: NDArray[np.float64], labels: Floats) -> Floats:
    """Fit logistic regression; weights are not negative: no input is evidence against a match."""
    used = np.ones(inputs.shape[1], np.bool_)
    weights = np.zeros(inputs.shape[1])
    while True:
        weights[:] = 0.0
        weights[used] = _regression(inputs[:, used], labels)
        negative = used & (weights < 0)
        negative[0] = False
        if not negative.any():
            return weights
        used &= ~negative


def _regression(inputs: NDArray[np.float64], labels: Floats) -> Floats:
    """Fit by Newton's method; the ridge keeps weights finite for separable data."""
    weights = np.zeros(inputs.shape[1])
    ridge = np.full(len(weights), _RIDGE)
    for _ in range(_MAX_ROUNDS):
        probability = 1.0 / (1.0 + np.exp(-_log_odds(inputs, weights)))
        gradient = inputs.T @ (labels - probability) - ridge * weights
        curvature = (inputs * (probability * (1.0 - probability))[:, None]).T @ inputs + np.diag(
            ridge
        )
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < _TOLERANCE:
            break
    return weights


def _wrong_per_decoy(log_odds: Floats, labels: Floats) -> float:
    """Return chosen pairs per decoy among the pairs least like matches, at most 1."""
    if not len(log_odds):
        return 1.0
    lowest = log_odds <= np.quantile(log_odds, _LOWEST_SHARE)
    chosen = float(labels[lowest].sum())
    return min(1.0, (1.0 + chosen) / (1.0 + float(lowest.sum()) - chosen))
