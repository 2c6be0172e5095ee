"""Road networks before they are matched: lines that meet at their ends only, and nowhere else.

Three steps, each for one source alone. Two one-way lines beside each other become their middle
*axis*. Ends that nearly meet are *snapped* together, or to the line that they nearly reach or pass.
Lines are *divided* where they cross or another one ends. They are visited in the order of their ids
and found by a grid: the time grows with their number, and the order in which they are given is of
no matter.
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
from spark_jobs.matching.similarity.grids import TOUCHES, Gathered, SegmentGrid
from spark_jobs.matching.similarity.lines import Road, RoadSettings

__all__ = ["divided"]


def divided(roads: Iterable[Road], settings: RoadSettings) -> list[Road]:
    """Return the roads of one source so that they meet at their ends only, by ids and pieces.

    Raises:
        InputUnfit: More segments, ends and crossings are at one place, or near each other in all
            places together, than the settings allow.
    """
    found = sorted(roads, key=lambda road: road.id)
    if settings.axes is not None:
        found = with_axes(found, settings, settings.axes)
    return [*_Network(found, settings).pieces()]


class _Vertex(NamedTuple):
    """A corner of a line, or a point that was added, `share` of the way along a segment."""

    segment: int
    share: float
    point: Point
    is_added: bool = False

    def is_replaced_by(self, following: _Vertex) -> bool:
        """Whether the vertex behind this one is the same point, or added where a corner is.

        Rounding may put it before the corner: the line would run back to it if both were kept.
        """
        if self.is_added or not self.segment or not following.is_added:
            return self.point == following.point
        return dist(self.point, following.point) <= TOUCHES


class _Network:
    """The lines of one source, while they are worked on: only their ends are moved."""

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
        """Cut the lines at every vertex where another one ends or crosses."""
        nodes = self._nodes()
        for number, road in enumerate(self._roads):
            vertices = self._vertices(number)
            inner = [at for at in range(1, len(vertices) - 1) if vertices[at] in nodes]
            ends = pairwise([0, *inner, len(vertices) - 1])
            for piece, (start, end) in enumerate(ends, start=1):
                points = tuple(vertices[start : end + 1])
                yield replace(road, points=points, piece=piece if inner else 0)

    def _nodes(self) -> set[Point]:
        """Where lines end, and where they are divided."""
        added = {vertex.point for vertices in self._added for vertex in vertices}
        return added | {line[at] for line in self._lines for at in (0, -1)}

    def _vertices(self, number: int) -> list[Point]:
        """The points of a line, with those that were added, in order; none twice in a row."""
        corners = [_Vertex(at, 0.0, point) for at, point in enumerate(self._lines[number])]
        kept: list[_Vertex] = []
        for vertex in sorted([*corners, *self._added[number]], reverse=True):
            if not kept or not vertex.is_replaced_by(kept[-1]):
                kept.append(vertex)
        return [vertex.point for vertex in reversed(kept)]

    def _add(self, number: int, segment: int, point: Point) -> None:
        """Add a point, unless it ends the line, or the segment: then it is of the next one."""
        start, end = self._lines[number][segment : segment + 2]
        if dist(point, end) <= TOUCHES or (not segment and dist(point, start) <= TOUCHES):
            return
        share = dist(start, point) / (dist(start, end) or 1.0)
        self._added[number].append(_Vertex(segment, share, point, is_added=True))

    def _snap_ends(self) -> None:
        """Move ends that nearly meet to the least of them; a line between two of them stays."""
        gathered = Gathered(max(self._snap, TOUCHES))
        ends = sorted({line[at] for line in self._lines for at in (0, -1)})
        moved = {end: gathered.least(end) for end in ends}
        for line in self._lines:
            start, end = moved[line[0]], moved[line[-1]]
            if start != end or line[0] == line[-1]:
                line[0], line[-1] = start, end

    def _snap_to_lines(self) -> None:
        """Move an end that meets no other one to the line that it nearly reaches, or passes."""
        meeting = Counter(line[at] for line in self._lines for at in (0, -1))
        for number, line in enumerate(self._lines):
            for at, opposite in ((0, -1), (-1, 0)):
                found = None if meeting[line[at]] > 1 else self._grid.nearest(line[at], number)
                if found is not None and found[2] != line[opposite]:
                    other, segment, point = found
                    line[at] = point
                    self._add(other, segment, point)

    def _cross(self) -> None:
        """Add the points where segments of two lines cross; those of three lines are one."""
        nodes = Gathered(TOUCHES)
        for line in self._lines:
            for at in (0, -1):
                nodes.least(line[at])
        for (one, at), (other, there) in self._grid.pairs():
            segments = self._lines[one][at : at + 2], self._lines[other][there : there + 2]
            crossing = _crossing(*segments[0], *segments[1])
            if crossing is None:
                continue
            point = nodes.least(crossing)
            if not _overlap(
                point, self._adjacent(point, one, at), self._adjacent(point, other, there)
            ):
                self._add(one, at, point)
                self._add(other, there, point)

    def _adjacent(self, point: Point, number: int, segment: int) -> list[Point]:
        """The corners of a line before and behind a point on a segment of it."""
        line = self._lines[number]
        before = segment - (dist(point, line[segment]) <= TOUCHES)
        behind = segment + 1 + (dist(point, line[segment + 1]) <= TOUCHES)
        return [line[at] for at in (before, behind) if 0 <= at < len(line)]

    def _divide_at_nodes(self) -> None:
        """Add ends, and points where two lines cross, to each line that they lie on."""
        nodes = sorted(self._nodes())
        self._grid.check_points(nodes)
        for point in nodes:
            for number, segment in self._grid.around(point):
                found = nearest(point, *self._lines[number][segment : segment + 2])
                if dist(point, found) <= TOUCHES:
                    self._add(number, segment, point)


def _crossing(a: Point, b: Point, c: Point, d: Point) -> Point | None:
    """Where two segments cross or touch; None: nowhere, or they are parallel."""
    (x0, y0), (x1, y1) = (b[0] - a[0], b[1] - a[1]), (d[0] - c[0], d[1] - c[1])
    area = x0 * y1 - y0 * x1
    if not area:
        return None
    x, y = c[0] - a[0], c[1] - a[1]
    share, other = (x * y1 - y * x1) / area, (x * y0 - y * x0) / area
    point = a[0] + share * x0, a[1] + share * y0
    if not (0 < share < 1 and 0 < other < 1):
        found = nearest(point, a, b), nearest(point, c, d)
        if max(dist(point, each) for each in found) > TOUCHES:
            return None
    ends = (a, b, c, d)
    return next((end for end in ends if dist(end, point) <= TOUCHES), point)


def _overlap(point: Point, ones: Sequence[Point], others: Sequence[Point]) -> bool:
    """Whether two lines go on in one direction from a point, to these of their corners."""
    for one, other in product(ones, others):
        (x0, y0), (x1, y1) = chord((point, one)), chord((point, other))
        apart = abs(x0 * y1 - y0 * x1) / (max(hypot(x0, y0), hypot(x1, y1)) or 1.0)
        if apart <= TOUCHES and x0 * x1 + y0 * y1 > 0:
            return True
    return False
