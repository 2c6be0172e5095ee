"""Polylines: parsing, joining, distances, and similarities."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import acos, atan2, ceil, dist, floor, fsum, hypot, pi
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "MAX_POINTS",
    "Cell",
    "Point",
    "Polyline",
    "cells",
    "chord",
    "chord_similarity",
    "join_lines",
    "length_similarity",
    "nearer_than",
    "nearest",
    "orient",
    "parse_polyline",
    "polyline",
    "turn_similarity",
]

MAX_POINTS: Final = 2_000
_MIN_POINTS: Final = 2
_MAX_COORDINATE: Final = 1e12
"""Maximum absolute coordinate: squares and sums of larger ones would lose digits."""
_MAX_STRAIGHT_TURN: Final = 0.1
"""Radians below which the sum of a line's turns counts as 0: a ratio of noise would be noise."""
_MAX_DIRECT_PAIRS: Final = 16
"""Maximum pairs of points of two lines whose segments are all compared."""
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
        The line; None if the value is not a line of two to `MAX_POINTS` points.
    """
    if isinstance(value, str):
        value = _parse_text(value)
    if isinstance(value, dict):
        value = value.get("coordinates") if value.get("type") == "LineString" else None
    if not isinstance(value, list) or not _MIN_POINTS <= len(value) <= MAX_POINTS:
        return None
    points = [_point(position) for position in value]
    return None if None in points else polyline([point for point in points if point])


def _parse_text(text: str) -> Any:
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
    return (x, y) if abs(x) <= _MAX_COORDINATE and abs(y) <= _MAX_COORDINATE else None


def polyline(points: Sequence[Point]) -> Polyline:
    """Return a line with its measures, without consecutive duplicate points."""
    distinct = [point for at, point in enumerate(points) if not at or point != points[at - 1]]
    steps = [(x1 - x0, y1 - y0) for (x0, y0), (x1, y1) in pairwise(distinct)]
    turns = (atan2(x0 * y1 - y0 * x1, x0 * x1 + y0 * y1) for (x0, y0), (x1, y1) in pairwise(steps))
    return Polyline(tuple(distinct), fsum(hypot(*step) for step in steps), fsum(turns))


def join_lines(one: Polyline, other: Polyline) -> Polyline | None:
    """Join two lines at a shared end point, from the lesser free end on; None: none is shared."""
    for head in (one, one.reversed):
        for tail in (other, other.reversed):
            if head.points[-1] == tail.points[0]:
                points = head.points + tail.points[1:]
                return polyline(min(points, points[::-1]))
    return None


def orient(line: Polyline, like: Polyline) -> Polyline:
    """Return a line in the direction in which its ends are nearer to those of another line."""
    (start, end), (other_start, other_end) = line.ends, like.ends
    same = dist(start, other_start) + dist(end, other_end)
    return line if same <= dist(start, other_end) + dist(end, other_start) else line.reversed


def length_similarity(one: Polyline, other: Polyline) -> float:
    longer = max(one.length, other.length)
    return min(one.length, other.length) / longer if longer else 1.0


def turn_similarity(one: Polyline, other: Polyline) -> float:
    """Compare the sums of signed turns: 1 if both lines are straight, 0 if they turn oppositely."""
    x, y = one.turn, orient(other, one).turn
    if abs(x) < _MAX_STRAIGHT_TURN and abs(y) < _MAX_STRAIGHT_TURN:
        return 1.0
    return 0.0 if x * y <= 0 else min(abs(x), abs(y)) / max(abs(x), abs(y))


def chord_similarity(one: Polyline, other: Polyline) -> float:
    """Compare the directions from end to end, in either direction."""
    (x0, y0), (x1, y1) = (chord(line.points) for line in (one, other))
    product = hypot(x0, y0) * hypot(x1, y1)
    if not product:  # a closed line has no direction
        return 0.0
    return 1 - acos(min(1.0, abs(x0 * x1 + y0 * y1) / product)) / (pi / 2)


def chord(points: Sequence[Point]) -> Point:
    """Return the vector from the first point to the last."""
    return points[-1][0] - points[0][0], points[-1][1] - points[0][1]


def cells(line: Polyline, size: float, buffer: float, limit: int) -> set[Cell] | None:
    """Return the cells of a grid that a line with a buffer touches; None: more than `limit`."""
    touched: set[Cell] = set()
    for start, end in _segments(line.points):
        (west, east), (south, north) = (sorted(axis) for axis in zip(start, end, strict=True))
        columns = _range(west - buffer, east + buffer, size)
        rows = _range(south - buffer, north + buffer, size)
        if len(columns) * len(rows) > limit:
            return None
        touched.update((column, row) for column in columns for row in rows)
        if len(touched) > limit:
            return None
    return touched


def _range(low: float, high: float, size: float) -> range:
    return range(floor(low / size), max(ceil(high / size), floor(high / size) + 1))


def _segments(points: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    return zip(points, points[1:] or points, strict=False)


def nearer_than(
    one: Polyline, other: Polyline, distance: float, count: Callable[[], None] = lambda: None
) -> bool:
    """Whether two lines cross or come within a distance.

    Args:
        distance: The distance, in the unit of the coordinates.
        count: Called whenever a line is halved for the comparison; it can raise.
    """
    return _pieces_nearer_than(one.points, other.points, distance, count)


def _pieces_nearer_than(
    one: Sequence[Point], other: Sequence[Point], distance: float, count: Callable[[], None]
) -> bool:
    """Halve the longer piece, unless the bounding boxes are too far apart."""
    if _box_distance(one, other) > distance:
        return False
    if len(one) * len(other) <= _MAX_DIRECT_PAIRS:
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
    """Return a lower bound of the distance of two lines: the larger gap of both axes."""
    axes = zip(zip(*one, strict=True), zip(*other, strict=True), strict=True)
    return max(float(max(min(a) - max(b), min(b) - max(a))) for a, b in axes)


def _segment_distance(a: Point, b: Point, c: Point, d: Point) -> float:
    if _are_on_both_sides(a, b, c, d) and _are_on_both_sides(c, d, a, b):
        return 0.0
    return min(
        _point_distance(a, c, d),
        _point_distance(b, c, d),
        _point_distance(c, a, b),
        _point_distance(d, a, b),
    )


def _are_on_both_sides(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Whether c and d are on different sides of the line through a and b."""
    return _area(a, b, c) * _area(a, b, d) < 0


def _area(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _point_distance(point: Point, start: Point, end: Point) -> float:
    return dist(point, nearest(point, start, end))


def nearest(point: Point, start: Point, end: Point) -> Point:
    """Return the point of a segment that is nearest to a point."""
    x, y = end[0] - start[0], end[1] - start[1]
    square = x * x + y * y
    share = ((point[0] - start[0]) * x + (point[1] - start[1]) * y) / square if square else 0.0
    if not 0 < share < 1:  # exactly an end, so that snapped points meet it
        return end if share > 0 else start
    return start[0] + share * x, start[1] + share * y
