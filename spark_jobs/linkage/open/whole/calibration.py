"""The probability that a pair is a match, without labels: by competition with pairs that are none.

Once every record has its best partner, the pairs that are left are no matches. If they are assigned
in the same way, the result, the *decoys*, shows what similarity and lead pairs reach by chance. The
odds of a chosen pair against decoys like it are fitted by a logistic regression. Among the pairs
that are least like matches, nearly none are: how many there are for each decoy is the share of
decoys that wrong pairs make up (as in the estimation of false discovery rates; Storey 2002).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.open.strings import Floats

__all__ = ["Calibration", "calibrated"]

_ROUNDS: Final = 50
_RIDGE: Final = 0.01
_CONVERGED: Final = 1e-8
_LEAST: Final = 0.01
_LOWEST: Final = 0.2
_MOST_LOG_ODDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was learnt from chosen pairs and decoys.

    Attributes:
        weights: Of the constant, and of the logarithms of similarity and lead.
        wrong: Wrong pairs for each decoy, in (0, 1].
        decoys: The number of decoys; fewer wrong pairs than one for all of them cannot be told.
    """

    weights: Floats
    wrong: float
    decoys: int

    def bits(self, similarity: Floats, lead: Floats) -> Floats:
        """The log2 odds of a match for each pair."""
        chances = self.wrong * np.exp(-_log_odds(_inputs(similarity, lead), self.weights))
        # Clipped: no pair is certain, and none that chance explains is more than improbable.
        chances = np.clip(chances, 1.0 / (self.decoys + 2.0), 1.0 - 1e-3)
        bits: Floats = np.log2(1.0 - chances) - np.log2(chances)
        return bits

    def to_json(self) -> dict[str, Any]:
        return {
            "weights": [float(f"{weight:.6g}") for weight in self.weights],
            "wrong_for_each_decoy": float(f"{self.wrong:.4g}"),
            "decoys": self.decoys,
        }


def calibrated(chosen: tuple[Floats, Floats], decoys: tuple[Floats, Floats]) -> Calibration:
    """Learn from the similarity and lead of chosen pairs, and of decoys."""
    right, wrong = _inputs(*chosen), _inputs(*decoys)
    inputs = np.concatenate([right, wrong])
    labels = np.repeat([1.0, 0.0], [len(right), len(wrong)])
    weights = _fitted(inputs, labels)
    return Calibration(weights, _wrong(_log_odds(inputs, weights), labels), len(wrong))


def _inputs(similarity: Floats, lead: Floats) -> NDArray[np.float64]:
    return np.column_stack(
        [np.ones(len(similarity)), np.log(similarity + 1e-9), np.log(lead + _LEAST)]
    )


def _log_odds(inputs: NDArray[np.float64], weights: Floats) -> Floats:
    return np.clip(inputs @ weights, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)


def _fitted(inputs: NDArray[np.float64], labels: Floats) -> Floats:
    """Weights of a logistic regression; none is negative, as neither speaks against a match."""
    used = np.ones(inputs.shape[1], np.bool_)
    weights = np.zeros(inputs.shape[1])
    while True:
        weights[:] = 0.0
        weights[used] = _regression(inputs[:, used], labels)
        against = used & (weights < 0)
        against[0] = False
        if not against.any():
            return weights
        used &= ~against


def _regression(inputs: NDArray[np.float64], labels: Floats) -> Floats:
    """Newton's method; the ridge keeps weights finite where a line divides both."""
    weights = np.zeros(inputs.shape[1])
    ridge = np.full(len(weights), _RIDGE)
    for _ in range(_ROUNDS):
        expected = 1.0 / (1.0 + np.exp(-_log_odds(inputs, weights)))
        gradient = inputs.T @ (labels - expected) - ridge * weights
        curvature = (inputs * (expected * (1.0 - expected))[:, None]).T @ inputs + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < _CONVERGED:
            break
    return weights


def _wrong(log_odds: Floats, labels: Floats) -> float:
    """Chosen pairs for each decoy among the pairs that are least like matches, at most 1."""
    if not len(log_odds):
        return 1.0
    lowest = log_odds <= np.quantile(log_odds, _LOWEST)
    chosen = float(labels[lowest].sum())
    return min(1.0, (1.0 + chosen) / (1.0 + float(lowest.sum()) - chosen))
