"""Thresholds: by how much one metric of one system must change to flip a choice (guarantee 7).

One metric is varied at a time. Of all scores only those of its system change then, so a choice
flips exactly where they cross the best of the others. Every f is a goal index or a given curve: the
search goes outward from the present value over a grid that contains each corner of each curve, and
halves the first interval in which the choice flips down to neighbouring doubles. Where all f of the
metric rise, or all fall, that is exact; where they oppose each other a flip and its reversal within
one interval of the grid (a factor of 1.4) may be missed.
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
    """Where one metric of one system flips a choice, the others staying as they are.

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
        moving = (share * fulfilment(requirement, value) for share, requirement in self.terms)
        return math.fsum((self.constant, *moving))


def thresholds(
    scores: Scores,
    requirements: Requirements,
    candidates: Iterable[Candidate],
    order: Sequence[str],
) -> list[Threshold]:
    """Find all one-at-a-time thresholds of a choice; of equal scores the first of `order` wins."""
    varied = {
        (r.metric, r.statistic): r for node in scores.shares for r in requirements[node]
    }.values()
    involved = [candidate for candidate in candidates if candidate.name in scores.by_system]
    return [
        _threshold(scores, requirements, candidate, order, requirement)
        for candidate in involved
        for requirement in sorted(varied, key=lambda r: (r.metric, r.statistic))
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

    def flipped(value: float) -> bool:
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
        below=_first_flip(flipped, measured, smaller),
        above=_first_flip(flipped, measured, larger),
    )


def _curve(
    scores: Scores,
    requirements: Requirements,
    candidate: Candidate,
    target: ContinuousRequirement,
) -> _Curve:
    fixed: list[float] = []
    moving: dict[ContinuousRequirement, float] = {}  # one pushed down to many fields counts once
    for share, requirement in terms(scores, requirements):
        if requirement is None:
            fixed.append(share * MET)
        elif (requirement.metric, requirement.statistic) == (target.metric, target.statistic):
            moving[requirement] = moving.get(requirement, 0.0) + share
        else:
            value = candidate.measured(requirement)
            assert value is not None, "a scored system has every required metric"
            fixed.append(share * fulfilment(requirement, value))
    return _Curve(math.fsum(fixed), tuple((share, r) for r, share in moving.items()))


def _grid(
    measured: float, requirements: Sequence[ContinuousRequirement], metric: Metric
) -> list[float]:
    corners = {corner for requirement in requirements for corner in _corners(requirement)}
    positive = [corner for corner in corners if corner > 0] or [1.0]
    scales = {min(positive), max(positive), measured or 1.0}
    values = {scale * 2 ** (half / 2) for scale in scales for half in _OCTAVES}
    # A step jumps at its corner: it may flip between the corner and the next double.
    neighbours = {
        math.nextafter(corner, way) for corner in corners for way in (-math.inf, math.inf)
    }
    most = 1.0 if metric.is_ratio else math.inf
    usable = values | corners | neighbours | {0.0, most}
    return sorted(value for value in usable if 0 <= value <= most and math.isfinite(value))


def _corners(requirement: ContinuousRequirement) -> Iterable[float]:
    utility = requirement.utility
    if utility is None:
        return (requirement.goal or 0.0,)
    if isinstance(utility, Sigmoid):
        return [utility.midpoint + tenth / 4 / utility.steepness for tenth in range(-160, 161)]
    return [metric for metric, _ in utility.points]


def _first_flip(
    flipped: Callable[[float], bool], start: float, outward: Sequence[float]
) -> float | None:
    before = start
    for value in outward:
        if flipped(value):
            return _halve(flipped, before, value)
        before = value
    return None


def _halve(flipped: Callable[[float], bool], before: float, after: float) -> float:
    # Halved first, so that no sum overflows; the end is reached when no double is between the two.
    while (middle := before / 2 + after / 2) not in (before, after):
        if flipped(middle):
            after = middle
        else:
            before = middle
    return after
