"""Utility functions, goal indices and Eq. 1 at their limits.

See docs/papers/ppm.md, sections 2 and 7.
"""

from __future__ import annotations

import math

import pytest

from mediator.placement.candidates import Candidate, closure
from mediator.placement.utility import INDEX_CAP, evaluate, goal_index, score
from mediator.schema.annotations import (
    Capability,
    ContinuousRequirement,
    Linear,
    Metric,
    Sigmoid,
    Step,
)


def test_a_step_takes_the_last_point_at_or_below_the_metric() -> None:
    curve = Step(((1.0, 0.9), (2.0, 0.4), (3.0, 0.0)))
    assert [evaluate(curve, x) for x in (0.5, 1, 1.9, 2, 2.9, 3, 9)] == [
        0.9,
        0.9,
        0.9,
        0.4,
        0.4,
        0.0,
        0.0,
    ]


def test_a_sigmoid_rises_through_one_half_and_falls_with_negative_steepness() -> None:
    assert evaluate(Sigmoid(0.98, 500), 0.98) == 0.5
    assert evaluate(Sigmoid(0.98, 500), 0.9999) > 0.99
    assert evaluate(Sigmoid(0.98, 500), 0.90) < 0.01
    assert evaluate(Sigmoid(0.02, -500), 0.9) < 0.01


@pytest.mark.parametrize("metric", [0.0, 5e-324, 1.0, 1.7e308])
@pytest.mark.parametrize(
    "curve",
    [
        Sigmoid(-1.7e308, 1.7e308),
        Sigmoid(1.7e308, -1.7e308),
        Linear(((-1.7e308, 1.0), (1.7e308, 0.0))),
        Linear(((0.0, 0.3),)),
    ],
)
def test_extreme_curves_stay_within_zero_and_one(curve: Sigmoid | Linear, metric: float) -> None:
    assert 0 <= evaluate(curve, metric) <= 1


def test_a_metric_of_zero_is_neither_divided_by_nor_unbounded() -> None:
    assert goal_index(Metric.READ_LATENCY, 0.05, 0.0) == INDEX_CAP
    assert goal_index(Metric.READ_LATENCY, 1e300, 1e-300) == INDEX_CAP
    assert goal_index(Metric.WRITE_THROUGHPUT, 1e-300, 1e300) == INDEX_CAP
    assert goal_index(Metric.WRITE_THROUGHPUT, 10_000, 0.0) == 0.0


def test_a_score_lists_its_terms() -> None:
    latency = ContinuousRequirement(Metric.WRITE_LATENCY, 1, goal=0.005)
    throughput = ContinuousRequirement(Metric.WRITE_THROUGHPUT, 3, goal=10_000)
    candidate = Candidate(
        "A", metrics={Metric.WRITE_LATENCY: 0.001, Metric.WRITE_THROUGHPUT: 25_000}
    )
    result = score((latency, throughput), candidate)
    assert result.value == pytest.approx(3.125)
    assert [
        (term.requirement.metric, term.measured, term.requirement.weight) for term in result.terms
    ] == [
        (Metric.WRITE_LATENCY, 0.001, 1),
        (Metric.WRITE_THROUGHPUT, 25_000, 3),
    ]
    assert [term.f for term in result.terms] == pytest.approx([5, 2.5])


@pytest.mark.parametrize("weight", [5e-324, 1e-300, 1e300, 1.7e308])
def test_extreme_weights_leave_a_finite_score(weight: float) -> None:
    requirement = ContinuousRequirement(Metric.READ_LATENCY, weight, goal=0.02)
    candidate = Candidate("A", metrics={Metric.READ_LATENCY: 0.01})
    assert score((requirement, requirement), candidate).value == pytest.approx(2)


def test_a_percentile_is_a_metric_of_its_own() -> None:
    requirement = ContinuousRequirement(Metric.READ_LATENCY, 1, goal=0.02, statistic="p99")
    candidate = Candidate(
        "A", metrics={Metric.READ_LATENCY: 0.001}, p99={Metric.READ_LATENCY: 0.04}
    )
    assert score((requirement,), candidate).value == pytest.approx(0.5)
    assert Candidate("B", metrics=candidate.metrics).measured(requirement) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_metric_that_is_not_finite_is_unknown(value: float) -> None:
    requirement = ContinuousRequirement(Metric.READ_LATENCY, 1, goal=0.02)
    assert Candidate("A", metrics={Metric.READ_LATENCY: value}).measured(requirement) is None


def test_a_stronger_consistency_level_implies_the_weaker_ones() -> None:
    levels = {
        Capability.LINEARIZABLE,
        Capability.CAUSAL,
        Capability.MONOTONIC,
        Capability.EVENTUAL,
    }
    assert Candidate("A", frozenset({Capability.LINEARIZABLE})).capabilities == levels
    assert closure([Capability.MONOTONIC]) == {Capability.MONOTONIC, Capability.EVENTUAL}
