"""The model: its estimate equals a plain computation's, and recovers known parameters."""

from __future__ import annotations

import sys
from itertools import product
from math import log2

import numpy as np
import pytest

from spark_jobs.linkage.open.em import Estimate, Patterns, estimate, session
from spark_jobs.linkage.open.model import Model, bits_of
from spark_jobs.linkage.open.spec import AgreementLevel, FieldComparison
from spark_jobs.runner.specification import SpecInvalid

EXACT = AgreementLevel(exact=True)
NEAR = AgreementLevel(levenshtein=1)
COMPARISONS = (
    FieldComparison(columns=("a",), levels=(EXACT, NEAR), term_frequency=True),
    FieldComparison(columns=("b",), levels=(EXACT,)),
    FieldComparison(columns=("c",), levels=(EXACT,)),
)
M = ([0, 0.8, 0.15, 0.05], [0, 0.9, 0.1], [0, 0.7, 0.3])
U = ([0, 0.02, 0.08, 0.9], [0, 0.05, 0.95], [0, 0.2, 0.8])
SIZES = [4, 3, 3]


def expected_patterns(pairs: float, share: float, rules: int = 0) -> Patterns:
    """Return the expected counts of all patterns, by the model's definition."""
    levels = np.array(list(product(*(range(1, size) for size in SIZES))), np.int8)
    counts = [
        share * np.prod([M[k][level] for k, level in enumerate(row)])
        + (1 - share) * np.prod([U[k][level] for k, level in enumerate(row)])
        for row in levels
    ]
    return Patterns(levels, pairs * np.array(counts), np.full(len(levels), rules, np.int64))


def test_the_parameters_that_generated_the_patterns_are_recovered() -> None:
    blocked = expected_patterns(1e6, 0.3, rules=1)
    estimated = estimate(expected_patterns(1e7, 1e-6), blocked, [frozenset()], SIZES, 1e9)
    for k in range(3):
        assert estimated.m[k] == pytest.approx(M[k], abs=0.01)
        assert estimated.u[k] == pytest.approx(U[k], abs=0.002)
    assert estimated.share == pytest.approx(0.3e6 / 1e9, rel=0.1)


def test_matches_among_random_pairs_do_not_spoil_u() -> None:
    blocked = expected_patterns(1e6, 0.3, rules=1)
    estimated = estimate(expected_patterns(1e6, 0.01), blocked, [frozenset()], SIZES, 3e7)
    assert estimated.u[0][1] == pytest.approx(U[0][1], abs=0.002)


def plain_session(patterns: Patterns, u: list[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """EM by its definition, pattern by pattern."""
    m = [np.array([0, *np.full(size - 1, 1 / (size - 1))]) for size in SIZES]
    m = [np.array([0, 0.6, 0.3, 0.1]), np.array([0, 0.9, 0.1]), np.array([0, 0.9, 0.1])]
    share = 0.1
    for _ in range(3_000):
        weights = []
        for row, count in zip(patterns.levels, patterns.counts, strict=True):
            match = share * float(np.prod([m[k][level] for k, level in enumerate(row)]))
            nonmatch = (1 - share) * float(np.prod([u[k][level] for k, level in enumerate(row)]))
            weights.append(count * match / (match + nonmatch))
        share = sum(weights) / patterns.counts.sum()
        for k, size in enumerate(SIZES):
            totals = np.full(size, 0.5)
            for row, weight in zip(patterns.levels, weights, strict=True):
                totals[row[k]] += weight
            totals[0] = 0
            m[k] = totals / totals.sum()
    return m, share


def test_a_session_equals_a_plain_computation() -> None:
    patterns = expected_patterns(10_000, 0.2)
    u = [np.array(probabilities) for probabilities in U]
    guess = [np.array([0, 0.6, 0.3, 0.1]), np.array([0, 0.9, 0.1]), np.array([0, 0.9, 0.1])]
    result = session(patterns, guess, u, frozenset())
    m, share = plain_session(patterns, u)
    for k in range(3):
        assert result.m[k] == pytest.approx(m[k], abs=2e-3)
    assert result.matches == pytest.approx(share * 10_000, rel=0.02)


def test_a_blocking_rule_does_not_estimate_its_own_comparison() -> None:
    guess = [np.array(probabilities, float) for probabilities in M]
    result = session(expected_patterns(1e4, 0.2), guess, guess, frozenset({1}))
    assert result.m[1] is None
    assert result.m[0] is not None


MODEL = Model(
    COMPARISONS,
    Estimate(
        m=tuple(np.array(probabilities, float) for probabilities in M),
        u=tuple(np.array(probabilities, float) for probabilities in U),
        share=0.001,
    ),
)


def test_bits_are_the_sum_of_their_reasons() -> None:
    patterns = np.arange(4 * 3 * 3)
    for pattern, bits in zip(patterns.tolist(), MODEL.pattern_bits(patterns), strict=True):
        reasons = sum(step.bits for step in MODEL.steps(pattern))
        assert MODEL.prior_bits + reasons + MODEL.usual_rarity(pattern) == pytest.approx(bits)


def test_a_pair_is_explained_in_words() -> None:
    pattern = (1 * 3 + 0) * 3 + 2
    explanation = MODEL.explanation(pattern)
    assert "a (exact) speaks for a match by 5.3 bits." in explanation
    assert "b is missing and says nothing." in explanation
    assert "c (else) speaks against a match by 1.4 bits." in explanation


def test_a_model_survives_encoding_as_json() -> None:
    decoded = Model.of_json(MODEL.to_json(), COMPARISONS)
    assert decoded.to_json() == MODEL.to_json()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"share": 0.1, "comparisons": []},
        {"share": 2, "comparisons": MODEL.to_json()["comparisons"]},
        {"share": 1e-310, "comparisons": MODEL.to_json()["comparisons"]},
    ],
)
def test_a_foreign_model_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(SpecInvalid, match="/model"):
        Model.of_json(document, COMPARISONS)


@pytest.mark.parametrize("share", [sys.float_info.min, 1 - 2**-53])
def test_a_model_of_any_share_is_explained(share: float) -> None:
    model = Model.of_json({**MODEL.to_json(), "share": share}, COMPARISONS)
    assert "beforehand" in model.explanation(0)


def test_bits_are_the_logarithm_of_odds() -> None:
    assert bits_of(0.9) == pytest.approx(log2(9))
    assert bits_of(1) == 1000
