"""Prepares road networks for matching: lines then meet only at their ends.

Each source is prepared separately, in three steps. Two parallel one-way lines become their middle
*axis*. Ends that nearly meet are *snapped* together, or to the line that they nearly reach or pass.
Lines are *divided* where they cross or another line ends. Lines are visited in the order of ids and
found by a grid: the time grows with their number, and their input order does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import dist, hypot
from typing import NamedTuple

from spark_jobs.matching.similarity.axes import with_axes
from spark_jobs.matching.similarity.geometry import Point, chord, nearest
from spark_jobs.matching.similarity.grids import TOUCHES, MergedPoints, SegmentGrid
from spark_jobs.matching.similarity.lines import Road, RoadSettings

__all__ = ["divide_roads"]


def divide_roads(roads: Iterable[Road], settings: RoadSettings) -> list[Road]:
    """Return the roads of one source, meeting only at their ends, in the order of ids and pieces.

    Raises:
        InputUnfit: The segments, ends and crossings at one place, or near each other at all places,
            are more than the settings allow.
    """
    ordered = sorted(roads, key=lambda road: road.id)
    if settings.axes is not None:
        ordered = with_axes(ordered, settings, settings.axes)
    return [*_Network(ordered, settings).pieces()]


class _Vertex(NamedTuple):
    """A corner of a line, or an added point, at a `share` of the way along a segment."""

    segment: int
    share: float
    point: Point
    is_added: bool = False

    def is_replaced_by(self, next_vertex: _Vertex) -> bool:
        """Whether the next vertex is the same point, or a point added at this corner.

        Rounding can put it before the corner: with both, the line would run backwards.
        """
        if self.is_added or not self.segment or not next_vertex.is_added:
            return self.point == next_vertex.point
        return dist(self.point, next_vertex.point) <= TOUCHES


class _Network:
    """The lines of one source during preparation; only their ends are moved."""

    def __init__(self, roads: Sequence[Road], settings: RoadSettings) -> None:
        self._roads = roads
        self._snap = settings.snap
        self._lines = [[*road.points] for road in roads]
        self._added: list[list[_Vertex]] = [[] for _ in roads]
        self._snap_ends()
        self._grid = SegmentGrid(roads, self._lines, settings)
        self._snap_to_lines()
        self._cross()
        self._divide_at_nodes()

    def pieces(self) -> Iterator[Road]:
        """Cut the lines at every vertex where another line ends or crosses."""
        nodes = self._nodes()
        for number, road in enumerate(self._roads):
            vertices = self._vertices(number)
            inner = [at for at in range(1, len(vertices) - 1) if vertices[at] in nodes]
            ends = pairwise([0, *inner, len(vertices) - 1])
            for piece, (start, end) in enumerate(ends, start=1):
                points = tuple(vertices[start : end + 1])
                yield replace(road, points=points, piece=piece if inner else 0)

    def _nodes(self) -> set[Point]:
        """Return the points where lines end or are divided."""
        added = {vertex.point for vertices in self._added for vertex in vertices}
        return added | {line[at] for line in self._lines for at in (0, -1)}

    def _vertices(self, number: int) -> list[Point]:
        """Return the points of a line with the added points, in order, without repetitions."""
        corners = [_Vertex(at, 0.0, point) for at, point in enumerate(self._lines[number])]
        vertices: list[_Vertex] = []
        for vertex in sorted([*corners, *self._added[number]], reverse=True):
            if not vertices or not vertex.is_replaced_by(vertices[-1]):
                vertices.append(vertex)
        return [vertex.point for vertex in reversed(vertices)]

    def _add(self, number: int, segment: int, point: Point) -> None:
        """Add a point, unless it ends the line, or the segment: then the next segment has it."""
        start, end = self._lines[number][segment : segment + 2]
        if dist(point, end) <= TOUCHES or (not segment and dist(point, start) <= TOUCHES):
            return
        share = dist(start, point) / (dist(start, end) or 1.0)
        self._added[number].append(_Vertex(segment, share, point, is_added=True))

    def _snap_ends(self) -> None:
        """Move ends that nearly meet to the least of them; a line between two of them is kept."""
        merged_ends = MergedPoints(max(self._snap, TOUCHES))
        ends = sorted({line[at] for line in self._lines for at in (0, -1)})
        representatives = {end: merged_ends.representative(end) for end in ends}
        for line in self._lines:
            start, end = representatives[line[0]], representatives[line[-1]]
            if start != end or line[0] == line[-1]:
                line[0], line[-1] = start, end

    def _snap_to_lines(self) -> None:
        """Move an end that meets no other end to the line that it nearly reaches or passes."""
        end_counts = Counter(line[at] for line in self._lines for at in (0, -1))
        for number, line in enumerate(self._lines):
            for at, opposite in ((0, -1), (-1, 0)):
                hit = None if end_counts[line[at]] > 1 else self._grid.nearest(line[at], number)
                if hit is not None and hit[2] != line[opposite]:
                    other, segment, point = hit
                    line[at] = point
                    self._add(other, segment, point)

    def _cross(self) -> None:
        """Add the points where segments of two lines cross; merge crossings of three lines."""
        nodes = MergedPoints(TOUCHES)
        for line in self._lines:
            for at in (0, -1):
                nodes.representative(line[at])
        for (one, at), (other, other_at) in self._grid.pairs():
            segments = self._lines[one][at : at + 2], self._lines[other][other_at : other_at + 2]
            crossing = _crossing(*segments[0], *segments[1])
            if crossing is None:
                continue
            point = nodes.representative(crossing)
            if not _overlap(
                point, self._adjacent(point, one, at), self._adjacent(point, other, other_at)
            ):
                self._add(one, at, point)
                self._add(other, other_at, point)

    def _adjacent(self, point: Point, number: int, segment: int) -> list[Point]:
        """Return the corners of a line before and after a point on one of its segments."""
        line = self._lines[number]
        before = segment - (dist(point, line[segment]) <= TOUCHES)
        after = segment + 1 + (dist(point, line[segment + 1]) <= TOUCHES)
        return [line[at] for at in (before, after) if 0 <= at < len(line)]

    def _divide_at_nodes(self) -> None:
        """Add ends and crossings to each line that contains them."""
        nodes = sorted(self._nodes())
        self._grid.check_points(nodes)
        for point in nodes:
            for number, segment in self._grid.around(point):
                nearest_point = nearest(point, *self._lines[number][segment : segment + 2])
                if dist(point, nearest_point) <= TOUCHES:
                    self._add(number, segment, point)


def _crossing(a: Point, b: Point, c: Point, d: Point) -> Point | None:
    """Return where two segments cross or touch; None: nowhere, or they are parallel."""
    (x0, y0), (x1, y1) = (b[0] - a[0], b[1] - a[1]), (d[0] - c[0], d[1] - c[1])
    area = x0 * y1 - y0 * x1
    if not area:
        return None
    x, y = c[0] - a[0], c[1] - a[1]
    share, other = (x * y1 - y * x1) / area, (x * y0 - y * x0) / area
    point = a[0] + share * x0, a[1] + share * y0
    if not (0 < share < 1 and 0 < other < 1):
        nearest_points = nearest(point, a, b), nearest(point, c, d)
        if max(dist(point, nearest_point) for nearest_point in nearest_points) > TOUCHES:
            return None
    ends = (a, b, c, d)
    return next((end for end in ends if dist(end, point) <= TOUCHES), point)


def _overlap(point: Point, ones: Sequence[Point], others: Sequence[Point]) -> bool:
    """Whether two lines continue in one direction from a point, to these of their corners."""
    for one, other in product(ones, others):
        (x0, y0), (x1, y1) = chord((point, one)), chord((point, other))
        distance = abs(x0 * y1 - y0 * x1) / (max(hypot(x0, y0), hypot(x1, y1)) or 1.0)
        if distance <= TOUCHES and x0 * x1 + y0 * y1 > 0:
            return True
    return False
