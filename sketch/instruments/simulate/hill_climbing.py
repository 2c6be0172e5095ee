"""Hill climbing over slope and longest TTL; docs/papers/cache_sketch.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log
from random import Random
from typing import Final, NamedTuple

__all__ = ["Summit", "hill_climbing"]

_SLOPE_STEP: Final = 0.05
_LONGEST_FACTOR: Final = 2.0
_LEAST_LONGEST_S: Final = 0.1
_MOST_LONGEST_S: Final = 600.0
_STEPS: Final = 50
"""From each start, at most."""


class Summit(NamedTuple):
    """The best point that was found, its cost, and how many points were looked at."""

    slope: float
    longest_s: float
    cost: float
    evaluations: int


_LEVELS: Final = 1 + int(log(_MOST_LONGEST_S / _LEAST_LONGEST_S, _LONGEST_FACTOR))
"""Longest TTLs on the grid."""

_Point = tuple[int, int]
"""Steps of the slope from 0, and steps of the longest TTL down from the longest one."""


def hill_climbing(cost: Callable[[float, float], float], starts: int, seed: int) -> Summit:
    """Find the slope and the longest TTL that cost least.

    The first climb begins with the best longest TTL for a slope of 0, by which rates do not
    matter: left and right of it are hills of their own. Slopes of the others begin anywhere in
    [0, 1] and may become negative; longest TTLs begin anywhere on a logarithmic scale. Points lie
    on a grid, so that climbs that meet go on as one.
    """
    random = Random(seed)  # noqa: S311 - a sample, not a secret
    known: dict[_Point, float] = {}

    def at(point: _Point) -> float:
        if point not in known:
            known[point] = cost(*_placed(point))
        return known[point]

    feet = [min(((0, level) for level in range(_LEVELS)), key=at)]
    while len(feet) < starts:
        feet.append((round(random.random() / _SLOPE_STEP), random.randrange(_LEVELS)))
    for foot in feet:
        here = foot
        for _ in range(_STEPS):
            best = min((here, *_around(here)), key=at)
            if best == here:
                break
            here = best
    best = min(known, key=at)
    return Summit(*_placed(best), known[best], len(known))


def _placed(point: _Point) -> tuple[float, float]:
    slope, level = point
    return slope * _SLOPE_STEP, _MOST_LONGEST_S * _LONGEST_FACTOR**-level


def _around(point: _Point) -> Iterator[_Point]:
    slope, level = point
    yield slope - 1, level
    yield slope + 1, level
    if level > 0:
        yield slope, level - 1
    if level < _LEVELS - 1:
        yield slope, level + 1
