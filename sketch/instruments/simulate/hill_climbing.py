"""Hill climbing over slope and longest life; docs/papers/cache_sketch.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["HillClimbing", "Summit", "hill_climbing"]

_SLOPE_STEP: Final = 0.05
_LONGEST_FACTOR: Final = 2.0
_LEAST_LONGEST_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class HillClimbing:
    """How the hill is climbed.

    Attributes:
        starts: At how many points it is begun.
        super_steps: How many steps are made from each, at most.
        most_s: TTL_max is never longer.
    """

    starts: int = 25
    super_steps: int = 50
    most_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Summit:
    """The best point that was found.

    Attributes:
        slope: Of CATE.
        longest_s: TTL_max.
        cost: There.
        evaluations: How many points were looked at.
    """

    slope: float
    longest_s: float
    cost: float
    evaluations: int


_Point = tuple[int, int]
"""Steps of the slope from 0, and steps of the longest life down from the longest one."""


def hill_climbing(
    cost: Callable[[float, float], float], settings: HillClimbing, seed: int
) -> Summit:
    """Find the slope and the longest life that cost least.

    The first climb begins with the best longest life for a slope of 0, by which rates do not
    matter: left and right of it are hills of their own. Slopes of the others begin anywhere in
    [0, 1] and may become negative; longest lives begin anywhere on a logarithmic scale. Points lie
    on a grid, so that climbs that meet go on as one.

    Args:
        cost: Of a slope and a longest life.
        settings: How far to look.
        seed: Decides where climbs begin.
    """
    random = Random(seed)  # noqa: S311 - a sample, not a secret
    known: dict[_Point, float] = {}

    def at(point: _Point) -> float:
        if point not in known:
            known[point] = cost(*_placed(point, settings))
        return known[point]

    levels = _levels(settings)
    starts = [min(((0, level) for level in range(levels)), key=at)]
    while len(starts) < settings.starts:
        starts.append((round(random.random() / _SLOPE_STEP), random.randrange(levels)))
    for start in starts:
        here = start
        for _ in range(settings.super_steps):
            best = min((here, *_around(here, settings)), key=at)
            if best == here:
                break
            here = best
    best = min(known, key=at)
    return Summit(*_placed(best, settings), known[best], len(known))


def _placed(point: _Point, settings: HillClimbing) -> tuple[float, float]:
    slope, level = point
    return slope * _SLOPE_STEP, settings.most_s * _LONGEST_FACTOR**-level


def _levels(settings: HillClimbing) -> int:
    """Return how many longest lives there are on the grid."""
    levels, life = 0, settings.most_s
    while life >= _LEAST_LONGEST_S:
        levels, life = levels + 1, life / _LONGEST_FACTOR
    return max(levels, 1)


def _around(point: _Point, settings: HillClimbing) -> Iterator[_Point]:
    slope, level = point
    yield slope - 1, level
    yield slope + 1, level
    if level > 0:
        yield slope, level - 1
    if level < _levels(settings) - 1:
        yield slope, level + 1
