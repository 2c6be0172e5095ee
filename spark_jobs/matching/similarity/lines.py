"""Lines of road networks, and what they are prepared with."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.matching.similarity.geometry import Point
from spark_jobs.runner.port import InputUnfit

__all__ = ["Road", "RoadSettings", "exceeded"]


@dataclass(frozen=True, slots=True)
class RoadSettings:
    """Distances in the unit of the coordinates.

    Attributes:
        snap: Ends as near as this meet.
        axes: Lanes as near as this are one road; None: they are left as they are.
        most_pairs: Pairs of segments in one cell, of a segment and an end or a crossing there, and
            of lanes whose ends are as near as `axes`.
        all_pairs: Each of these in all cells together.
    """

    snap: float
    axes: float | None = None
    most_pairs: int = 1_000_000
    all_pairs: int = 100_000_000


@dataclass(frozen=True, slots=True)
class Road:
    """A line with the id of its record.

    Attributes:
        one_way: Whether it is a lane in the direction of its points.
        piece: Which piece of the line, from 1; 0: it is whole.
        other: The id of the second lane, if the line is the axis of two.
    """

    id: str
    points: tuple[Point, ...]
    one_way: bool = False
    piece: int = 0
    other: str | None = None


def exceeded(reason: str, limit: str) -> InputUnfit:
    """Return why so many lines that are near each other are not compared, and by which limit."""
    return InputUnfit(f"{reason}. limits.{limit} is exceeded.")
