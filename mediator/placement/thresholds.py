"""Thresholds: by how much one metric of one system must change to flip a choice (guarantee 7).

One metric is varied at a time. Then only its system's scores change, so a choice flips exactly
where they cross the best of the others. Every f is a goal index or a given curve: the search goes
outward from the present value over a grid that contains each corner of each curve, and bisects the
first interval in which the choice flips down to neighbouring doubles. If all f of the metric rise,
or all fall, that is exact; if they oppose each other, the search may miss a flip and its reversal
within one interval of the grid (a factor of 1.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mediator.placement.candidates import Candidate
from mediator.placement.scores import Requirements, Scores, terms
from mediator.placement.utility import MET, fulfilment
from mediator.schema.annotations import ContinuousRequirement, Metric, Sigmoid, Statistic

__all__ = ["Threshold", "thresholds"]

_OCTAVES = range(-80, 81)


@dataclass(frozen=True)
class Threshold:
    """Where one metric of one system flips a choice, all others being unchanged.

    Attributes:
        below: The largest smaller value at which another system is chosen, or None.
        above: The smallest larger value at which another system is chosen, or None.
    """

    system: str
    metric: Metric
    statistic: Statistic
    measured: float
    below: float | None
    above: float | None


@dataclass(frozen=True)
class _Curve:
    """A system's score as a function of one metric: a constant and weighted requirements."""

    constant: float
    terms: tuple[tuple[float, ContinuousRequirement], ...]

    def __call__(self, value: float) -> float:
        variable = (share * fulfilment(requirement, value) for share, requirement in self.terms)
        return math.fsum((self.constant, *variable))


def thresholds(
    scores: Scores,
    requirements: Requirements,
    candidates: Iterable[Candidate],
    order: Sequence[str],
) -> list[Threshold]:
    """Return all one-at-a-time thresholds of a choice; the first of `order` wins ties."""
    distinct = {
        (r.metric, r.statistic): r for node in scores.shares for r in requirements[node]
    }.values()
    scored = [candidate for candidate in candidates if candidate.name in scores.by_system]
    return [
        _threshold(scores, requirements, candidate, order, requirement)
        for candidate in scored
        for requirement in sorted(distinct, key=lambda r: (r.metric, r.statistic))
    ]


def _threshold(
    scores: Scores,
    requirements: Requirements,
    candidate: Candidate,
    order: Sequence[str],
    target: ContinuousRequirement,
) -> Threshold:
    measured = candidate.measured(target)
    assert measured is not None, "a scored system has every required metric"
    curve = _curve(scores, requirements, candidate, target)
    chosen = scores.ranked(order)[0]

    def is_flipped(value: float) -> bool:
        varied = replace(scores, by_system={**scores.by_system, candidate.name: curve(value)})
        return varied.ranked(order)[0] != chosen

    grid = _grid(measured, [requirement for _, requirement in curve.terms], target.metric)
    smaller = [value for value in reversed(grid) if value < measured]
    larger = [value for value in grid if value > measured]
    return Threshold(
        candidate.name,
        target.metric,
        target.statistic,
        measured,
        below=_first_flip(is_flipped, measured, smaller),
        above=_first_flip(is_flipped, measured, larger),
    )


def _curve(
    scores: Scores,
    requirements: Requirements,
    candidate: Candidate,
    target: ContinuousRequirement,
) -> _Curve:
    fixed: list[float] = []
    # A requirement that is pushed down to many fields counts once.
    variable: dict[ContinuousRequirement, float] = {}
    for share, requirement in terms(scores, requirements):
        if requirement is None:
            fixed.append(share * MET)
        elif (requirement.metric, requirement.statistic) == (target.metric, target.statistic):
            variable[requirement] = variable.get(requirement, 0.0) + share
        else:
            value = candidate.measured(requirement)
            assert value is not None, "a scored system has every required metric"
            fixed.append(share * fulfilment(requirement, value))
    return _Curve(math.fsum(fixed), tuple((share, r) for r, share in variable.items()))


def _grid(
    measured: float, requirements: Sequence[ContinuousRequirement], metric: Metric
) -> list[float]:
    corners = {corner for requirement in requirements for corner in _corners(requirement)}
    positive = [corner for corner in corners if corner > 0] or [1.0]
    scales = {min(positive), max(positive), measured or 1.0}
    values = {scale * 2 ** (half / 2) for scale in scales for half in _OCTAVES}
    # A step jumps at its corner: it can flip between the corner and the next double.
    neighbours = {
        math.nextafter(corner, direction)
        for corner in corners
        for direction in (-math.inf, math.inf)
    }
    max_value = 1.0 if metric.is_ratio else math.inf
    usable = values | corners | neighbours | {0.0, max_value}
    return sorted(value for value in usable if 0 <= value <= max_value and math.isfinite(value))


def _corners(requirement: ContinuousRequirement) -> Iterable[float]:
    utility = requirement.utility
    if utility is None:
        return (requirement.goal or 0.0,)
    if isinstance(utility, Sigmoid):
        return [utility.midpoint + tenth / 4 / utility.steepness for tenth in range(-160, 161)]
    return [metric for metric, _ in utility.points]


def _first_flip(
    is_flipped: Callable[[float], bool], start: float, outward: Sequence[float]
) -> float | None:
    before = start
    for value in outward:
        if is_flipped(value):
            return _bisect(is_flipped, before, value)
        before = value
    return None


def _bisect(is_flipped: Callable[[float], bool], before: float, after: float) -> float:
    # Halved first, so that no sum overflows; it ends when no double lies between the two.
    while (middle := before / 2 + after / 2) not in (before, after):
        if is_flipped(middle):
            after = middle
        else:
            before = middle
    return after
