"""Weights and a threshold learned from labels."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.matching.similarity.learning import fit_weights
from spark_jobs.runner.port import InputUnfit


def test_the_discriminating_measure_gets_the_weight() -> None:
    random = np.random.default_rng(1)
    matches = np.arange(200) % 2 == 0
    discriminating = np.where(matches, random.uniform(0.6, 1, 200), random.uniform(0, 0.5, 200))
    noise = random.uniform(0, 1, 200)
    against = 1 - discriminating
    terms = np.stack([discriminating, noise, against], axis=1)
    fitted = fit_weights(terms, [*map(bool, matches)], relational=0.3)
    assert sum(fitted.weights) == pytest.approx(0.7)
    assert fitted.weights[0] > 0.6
    assert fitted.weights[2] == 0
    assert 0.5 * 0.7 < fitted.threshold < 0.62 * 0.7
    assert fitted.agreement > 0.98
    assert fitted.labels == 200


@pytest.mark.parametrize(
    ("terms", "matches", "reason"),
    [
        ([[1.0]] * 3 + [[0.0]], [True, True, True, False], "2 matches"),
        ([[0.0], [0.1], [0.9], [1.0]], [True, True, False, False], "No measure"),
        ([[0.5]] * 4, [True, True, False, False], "No measure"),
    ],
)
def test_uninformative_labels_are_refused(
    terms: list[list[float]], matches: list[bool], reason: str
) -> None:
    with pytest.raises(InputUnfit, match=reason):
        fit_weights(np.array(terms), matches, relational=0.0)
