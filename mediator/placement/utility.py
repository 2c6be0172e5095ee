"""Utility: how well a measured metric meets a requirement, and the score of a field (Eq. 1)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from mediator.base.immutable import immutable
from mediator.placement.candidates import Candidate
from mediator.schema.annotations import (
    ContinuousRequirement,
    Linear,
    Metric,
    Sigmoid,
    Step,
    Utility,
)

__all__ = [
    "INDEX_CAP",
    "MET",
    "FieldScore",
    "Term",
    "advantage",
    "evaluate",
    "fulfilment",
    "goal_index",
    "score",
]

INDEX_CAP = 1e6
"""Maximum goal index: a metric of 0 must not outweigh every other requirement by an infinity."""

MET = 1.0
"""The score of a system for a field that requires only capabilities, all of which it has: that
of an optimal utility."""


@immutable
class Term:
    """One requirement's term of a score: the metric, its measured value, f of it, its weight."""

    requirement: ContinuousRequirement
    measured: float
    f: float


@immutable
class FieldScore:
    value: float
    terms: tuple[Term, ...]


def _linear(points: Sequence[tuple[float, float]], metric: float) -> float:
    if metric <= points[0][0]:
        return points[0][1]
    if metric >= points[-1][0]:
        return points[-1][1]
    right = bisect_right(points, metric, key=lambda point: point[0])
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    # Halved, so that no difference of two doubles overflows.
    return y0 + (y1 - y0) * ((metric / 2 - x0 / 2) / (x1 / 2 - x0 / 2))


def _step(points: Sequence[tuple[float, float]], metric: float) -> float:
    return points[max(0, bisect_right(points, metric, key=lambda point: point[0]) - 1)][1]


def _sigmoid(curve: Sigmoid, metric: float) -> float:
    exponent = curve.steepness * (metric - curve.midpoint)
    if exponent >= 0:
        return 1 / (1 + math.exp(-min(exponent, 700)))
    growth = math.exp(max(exponent, -700))  # the same, in a form in which exp never overflows
    return growth / (1 + growth)


def evaluate(utility: Utility, metric: float) -> float:
    """Evaluate a utility function at a metric; points are in ascending order of the metric."""
    match utility:
        case Linear(points):
            return _linear(points, metric)
        case Step(points):
            return _step(points, metric)
        case Sigmoid():
            return _sigmoid(utility, metric)


def goal_index(metric: Metric, goal: float, measured: float) -> float:
    """Return the performance index: goal/metric where small is good, metric/goal otherwise.

    It is at most `INDEX_CAP`, which also stands for a metric of 0 where small is good.
    """
    above, below = (goal, measured) if metric.small_is_good else (measured, goal)
    if above <= 0:
        return 0.0
    return INDEX_CAP if below <= 0 else min(INDEX_CAP, above / below)


def fulfilment(requirement: ContinuousRequirement, measured: float) -> float:
    """Return f(metric) of one requirement: its utility, or its goal index."""
    if requirement.utility is not None:
        return evaluate(requirement.utility, measured)
    assert requirement.goal is not None, "a continuous requirement has a goal or a utility"
    return goal_index(requirement.metric, requirement.goal, measured)


def advantage(score: float, other: float | None) -> float:
    """Return the ratio by which a score exceeds another, 0.2 for 20 %; at most `INDEX_CAP`."""
    if other is None or other <= 0:
        return INDEX_CAP if score > 0 or other is None else 0.0
    return min(INDEX_CAP, score / other - 1)


def score(requirements: Sequence[ContinuousRequirement], candidate: Candidate) -> FieldScore:
    """Score a candidate for a field: sum(w * f(metric)) / sum(w) (docs/papers/ppm.md, Eq. 1).

    Without requirements that have a metric the score is `MET`.

    Raises:
        KeyError: The candidate lacks a metric; such candidates are dropped beforehand.
    """
    terms = tuple(_term(requirement, candidate) for requirement in requirements)
    if not terms:
        return FieldScore(MET, ())
    # Scaled by a power of two, which is exact: huge and tiny weights stay in a double's range.
    exponent = math.frexp(max(term.requirement.weight for term in terms))[1]
    weights = [math.ldexp(term.requirement.weight, -exponent) for term in terms]
    total = math.fsum(weight * term.f for weight, term in zip(weights, terms, strict=True))
    return FieldScore(total / math.fsum(weights), terms)


def _term(requirement: ContinuousRequirement, candidate: Candidate) -> Term:
    measured = candidate.measured(requirement)
    if measured is None:
        raise KeyError(requirement.metric)
    return Term(requirement, measured, fulfilment(requirement, measured))
