"""Lines of road networks, and the settings of their preparation."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.matching.similarity.geometry import Point
from spark_jobs.runner.port import InputUnfit

__all__ = ["Road", "RoadSettings", "limit_error"]


@dataclass(frozen=True, slots=True)
class RoadSettings:
    """Distances, in the unit of the coordinates, and limits.

    Attributes:
        snap: Maximum distance of ends that meet.
        axes: Maximum distance of lanes that are one road; None: lanes are not merged.
        max_pairs: Maximum pairs of segments in one cell, of a segment and an end or a crossing
            there, and of lanes whose ends are within `axes`.
        all_pairs: The maximum of each in all cells together.
    """

    snap: float
    axes: float | None = None
    max_pairs: int = 1_000_000
    all_pairs: int = 100_000_000


@dataclass(frozen=True, slots=True)
class Road:
    """A line with the id of its record.

    Attributes:
        one_way: Whether it is a lane in the direction of its points.
        piece: The number of the piece of the line, from 1; 0: it is not divided.
        other: The id of the second lane, if the line is the axis of two lanes.
    """

    id: str
    points: tuple[Point, ...]
    one_way: bool = False
    piece: int = 0
    other: str | None = None


def limit_error(reason: str, limit: str) -> InputUnfit:
    """Return the error that too many near lines exceed a limit."""
    return InputUnfit(f"{reason}. limits.{limit} is exceeded.")
