"""Polylines: reading, joining, distances, and what is compared of two of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import acos, atan2, ceil, dist, floor, fsum, hypot, pi
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "MOST_POINTS",
    "Cell",
    "Point",
    "Polyline",
    "cells",
    "chord",
    "chord_similarity",
    "joined",
    "length_similarity",
    "nearer_than",
    "nearest",
    "oriented",
    "parse_polyline",
    "polyline",
    "turn_similarity",
]

MOST_POINTS: Final = 2_000
_FEWEST: Final = 2
_FARTHEST: Final = 1e12
"""Of a coordinate from 0: squares and sums of what is farther would lose its digits."""
_STRAIGHT: Final = 0.1
"""Radians below which the turns of a line sum up to nothing: a ratio of noise would be noise."""
_FEW_PAIRS: Final = 16
"""Of points of two lines, whose segments are compared each with each."""
_WKT: Final = re.compile(r"\s*LINESTRING\s*\(([^()]*)\)\s*", re.IGNORECASE)

Point: TypeAlias = tuple[float, float]
Cell: TypeAlias = tuple[int, int]


class Polyline(NamedTuple):
    """A line of points; `turn` is the sum of its signed turns, in radians."""

    points: tuple[Point, ...]
    length: float
    turn: float

    @property
    def ends(self) -> tuple[Point, Point]:
        return self.points[0], self.points[-1]

    @property
    def middle(self) -> Point:
        """The centre of its bounding box."""
        (west, east), (south, north) = ((min(c), max(c)) for c in zip(*self.points, strict=True))
        return (west + east) / 2, (south + north) / 2

    @property
    def reversed(self) -> Polyline:
        return Polyline(self.points[::-1], self.length, -self.turn)


def parse_polyline(value: Any) -> Polyline | None:
    """Read a line: GeoJSON (RFC 7946) as object or text, its coordinates alone, or WKT.

    Returns:
        None if it is no line of two to `MOST_POINTS` points.
    """
    if isinstance(value, str):
        value = _parsed_text(value)
    if isinstance(value, dict):
        value = value.get("coordinates") if value.get("type") == "LineString" else None
    if not isinstance(value, list) or not _FEWEST <= len(value) <= MOST_POINTS:
        return None
    points = [_point(each) for each in value]
    return None if None in points else polyline([point for point in points if point])


def _parsed_text(text: str) -> Any:
    if line := _WKT.fullmatch(text):
        return [position.split() for position in line[1].split(",")]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _point(value: Any) -> Point | None:
    if not isinstance(value, list) or len(value) < 2:  # noqa: PLR2004 - x and y
        return None
    try:
        x, y = float(value[0]), float(value[1])
    except (TypeError, ValueError, OverflowError):
        return None
    return (x, y) if abs(x) <= _FARTHEST and abs(y) <= _FARTHEST else None


def polyline(points: Sequence[Point]) -> Polyline:
    """Measure a line; points that repeat the one before are left out."""
    kept = [point for at, point in enumerate(points) if not at or point != points[at - 1]]
    steps = [(x1 - x0, y1 - y0) for (x0, y0), (x1, y1) in pairwise(kept)]
    turns = (atan2(x0 * y1 - y0 * x1, x0 * x1 + y0 * y1) for (x0, y0), (x1, y1) in pairwise(steps))
    return Polyline(tuple(kept), fsum(hypot(*step) for step in steps), fsum(turns))


def joined(one: Polyline, other: Polyline) -> Polyline | None:
    """Join two lines at a shared end point, from the lesser free end on; None: they share none."""
    for head in (one, one.reversed):
        for tail in (other, other.reversed):
            if head.points[-1] == tail.points[0]:
                points = head.points + tail.points[1:]
                return polyline(min(points, points[::-1]))
    return None


def oriented(line: Polyline, like: Polyline) -> Polyline:
    """Return a line in the direction in which its ends are nearer to those of another one."""
    (start, end), (other_start, other_end) = line.ends, like.ends
    same = dist(start, other_start) + dist(end, other_end)
    return line if same <= dist(start, other_end) + dist(end, other_start) else line.reversed


def length_similarity(one: Polyline, other: Polyline) -> float:
    longer = max(one.length, other.length)
    return min(one.length, other.length) / longer if longer else 1.0


def turn_similarity(one: Polyline, other: Polyline) -> float:
    """Compare the sums of signed turns: 1 if both lines are straight, 0 if they turn oppositely."""
    x, y = one.turn, oriented(other, one).turn
    if abs(x) < _STRAIGHT and abs(y) < _STRAIGHT:
        return 1.0
    return 0.0 if x * y <= 0 else min(abs(x), abs(y)) / max(abs(x), abs(y))


def chord_similarity(one: Polyline, other: Polyline) -> float:
    """Compare the directions from end to end, whichever end is the first."""
    (x0, y0), (x1, y1) = (chord(line.points) for line in (one, other))
    product = hypot(x0, y0) * hypot(x1, y1)
    if not product:  # a closed line has no direction
        return 0.0
    return 1 - acos(min(1.0, abs(x0 * x1 + y0 * y1) / product)) / (pi / 2)


def chord(points: Sequence[Point]) -> Point:
    """Return the way from the first point to the last one, as its two coordinates."""
    return points[-1][0] - points[0][0], points[-1][1] - points[0][1]


def cells(line: Polyline, size: float, buffer: float, most: int) -> set[Cell] | None:
    """Return the cells of a grid that a line touches with a buffer; None: they are too many."""
    found: set[Cell] = set()
    for start, end in _segments(line.points):
        (west, east), (south, north) = (sorted(axis) for axis in zip(start, end, strict=True))
        columns = _range(west - buffer, east + buffer, size)
        rows = _range(south - buffer, north + buffer, size)
        if len(columns) * len(rows) > most:
            return None
        found.update((column, row) for column in columns for row in rows)
        if len(found) > most:
            return None
    return found


def _range(least: float, most: float, size: float) -> range:
    return range(floor(least / size), max(ceil(most / size), floor(most / size) + 1))


def _segments(points: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    return zip(points, points[1:] or points, strict=False)


def nearer_than(
    one: Polyline, other: Polyline, distance: float, count: Callable[[], None] = lambda: None
) -> bool:
    """Whether two lines cross or come as near as this.

    Args:
        distance: In the unit of the coordinates.
        count: Called whenever one of them is halved to be compared; it may raise.
    """
    return _pieces_nearer_than(one.points, other.points, distance, count)


def _pieces_nearer_than(
    one: Sequence[Point], other: Sequence[Point], distance: float, count: Callable[[], None]
) -> bool:
    """Halve the longer piece, unless the boxes around both are too far away from each other."""
    if _box_distance(one, other) > distance:
        return False
    if len(one) * len(other) <= _FEW_PAIRS:
        return any(
            _segment_distance(*first, *second) <= distance
            for first in _segments(one)
            for second in _segments(other)
        )
    count()
    shorter, longer = sorted((one, other), key=len)
    half = len(longer) // 2
    return any(
        _pieces_nearer_than(piece, shorter, distance, count)
        for piece in (longer[: half + 1], longer[half:])
    )


def _box_distance(one: Sequence[Point], other: Sequence[Point]) -> float:
    """No more than the distance of two lines: the greater one of both axes."""
    axes = zip(zip(*one, strict=True), zip(*other, strict=True), strict=True)
    return max(float(max(min(a) - max(b), min(b) - max(a))) for a, b in axes)


def _segment_distance(a: Point, b: Point, c: Point, d: Point) -> float:
    if _sides(a, b, c, d) and _sides(c, d, a, b):
        return 0.0
    return min(
        _point_distance(a, c, d),
        _point_distance(b, c, d),
        _point_distance(c, a, b),
        _point_distance(d, a, b),
    )


def _sides(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Whether c and d lie on different sides of the line through a and b."""
    return _area(a, b, c) * _area(a, b, d) < 0


def _area(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _point_distance(point: Point, start: Point, end: Point) -> float:
    return dist(point, nearest(point, start, end))


def nearest(point: Point, start: Point, end: Point) -> Point:
    """Return the place on a segment that is nearest to a point."""
    x, y = end[0] - start[0], end[1] - start[1]
    square = x * x + y * y
    share = ((point[0] - start[0]) * x + (point[1] - start[1]) * y) / square if square else 0.0
    if not 0 < share < 1:  # exactly an end, so that what is snapped to it meets it
        return end if share > 0 else start
    return start[0] + share * x, start[1] + share * y
