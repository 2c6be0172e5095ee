"""Road networks before they are matched: lines that meet at their ends only, and nowhere else.

Three steps, each for one source alone. Two one-way lines beside each other become their middle
*axis*. Ends that nearly meet are *snapped* together, or to the line that they nearly reach or pass.
Lines are *divided* where they cross or another one ends. They are visited in the order of their ids
and found by a grid: the time grows with their number, and the order in which they are given is of
no matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, pairwise, product
from math import dist, floor, hypot
from typing import Final, NamedTuple, TypeAlias

from spark_jobs.matching.similarity.geometry import Point, cells, nearest, polyline

__all__ = ["CrowdedCell", "Road", "RoadSettings", "divided"]

_MOST_CELLS: Final = 10_000
_OPPOSITE: Final = -0.97
"""Cosine of the directions of two lanes: 166 degrees at least."""
_ALIKE: Final = 0.8
"""Of the lengths of two lanes, the shorter by the longer."""
_TOUCHES: Final = 1e-6
"""A distance of less is none."""

Cell: TypeAlias = tuple[int, int]


class CrowdedCell(Exception):
    """So many lines are at one place that comparing them would cost too much."""


@dataclass(frozen=True, slots=True)
class RoadSettings:
    """Distances in the unit of the coordinates.

    Attributes:
        snap: Ends as near as this meet.
        axes: Lanes as near as this are one road; None: they are left as they are.
        most_pairs: Pairs of segments in one cell, and of lanes whose ends are as near as `axes`.
    """

    snap: float
    axes: float | None = None
    most_pairs: int = 1_000_000


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


def divided(roads: Iterable[Road], settings: RoadSettings) -> list[Road]:
    """Return the roads of one source so that they meet at their ends only, by ids and pieces.

    Raises:
        CrowdedCell: More segments are at one place than the settings allow.
    """
    found = sorted(roads, key=lambda road: road.id)
    if settings.axes is not None:
        found = _with_axes(found, settings, settings.axes)
    return [*_Network(found, settings).pieces()]


class _Vertex(NamedTuple):
    """A point on a segment of a line, `share` of the way along it."""

    segment: int
    share: float
    point: Point


class _Grid:
    """Segments of lines by the cells that they come near; ends of lines may be moved as far."""

    def __init__(
        self,
        roads: Sequence[Road],
        lines: Sequence[Sequence[Point]],
        settings: RoadSettings,
    ) -> None:
        self._roads = roads
        self._lines = lines
        self._reach = max(settings.snap, _TOUCHES)
        self._size = max(_mean_length(lines), 2 * self._reach)
        self.cells: defaultdict[Cell, list[tuple[int, int]]] = defaultdict(list)
        for number, line in enumerate(lines):
            for at, segment in enumerate(pairwise(line)):
                near = self._reach + _TOUCHES
                touched = cells(polyline(segment), self._size, near, _MOST_CELLS)
                if touched is None:
                    raise CrowdedCell(f"{roads[number].id} is too long for its network.")
                for cell in touched:
                    self.cells[cell].append((number, at))
        self._check(settings.most_pairs)

    def _check(self, most_pairs: int) -> None:
        for segments in self.cells.values():
            if len(segments) * (len(segments) - 1) // 2 > most_pairs:
                name = self._roads[segments[0][0]].id
                raise CrowdedCell(f"{len(segments):,} segments lie where {name} does.")

    def around(self, point: Point) -> Sequence[tuple[int, int]]:
        """Lines and segments that may be near a point."""
        return self.cells.get(_cell(point, self._size), ())

    def nearest(self, point: Point, but: int | None = None) -> tuple[int, int, Point] | None:
        """The nearest point on a line, no farther than the reach: line, segment, point."""
        points = (
            (number, at, nearest(point, *self._lines[number][at : at + 2]))
            for number, at in self.around(point)
            if number != but
        )
        found = ((dist(point, each[-1]), *each) for each in points)
        best = min((each for each in found if each[0] <= self._reach), default=None)
        return best and best[1:]


def _mean_length(lines: Sequence[Sequence[Point]]) -> float:
    lengths = [dist(*segment) for line in lines for segment in pairwise(line)]
    return sum(lengths) / max(1, len(lengths))


class _Network:
    """The lines of one source, while they are worked on: only their ends are moved."""

    def __init__(self, roads: Sequence[Road], settings: RoadSettings) -> None:
        self._roads = roads
        self._snap = settings.snap
        self._lines = [[*road.points] for road in roads]
        self._added: list[list[_Vertex]] = [[] for _ in roads]
        self._snap_ends()
        self._grid = _Grid(roads, self._lines, settings)
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
        ordered = [vertex.point for vertex in sorted([*corners, *self._added[number]])]
        return [point for at, point in enumerate(ordered) if not at or point != ordered[at - 1]]

    def _add(self, number: int, segment: int, point: Point) -> None:
        """Add a point, unless it ends the line, or the segment: then it is of the next one."""
        start, end = self._lines[number][segment : segment + 2]
        if dist(point, end) <= _TOUCHES or (not segment and dist(point, start) <= _TOUCHES):
            return
        share = dist(start, point) / (dist(start, end) or 1.0)
        self._added[number].append(_Vertex(segment, share, point))

    def _snap_ends(self) -> None:
        """Move ends that nearly meet to the least of them; a line between two of them stays."""
        gathered = _Gathered(max(self._snap, _TOUCHES))
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
        nodes = _Gathered(_TOUCHES)
        for line in self._lines:
            for at in (0, -1):
                nodes.least(line[at])
        pairs = {
            pair
            for segments in self._grid.cells.values()
            for pair in combinations(segments, 2)
            if pair[0][0] != pair[1][0]
        }
        for (one, at), (other, there) in sorted(pairs):
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
        before = segment - (dist(point, line[segment]) <= _TOUCHES)
        behind = segment + 1 + (dist(point, line[segment + 1]) <= _TOUCHES)
        return [line[at] for at in (before, behind) if 0 <= at < len(line)]

    def _divide_at_nodes(self) -> None:
        """Add ends, and points where two lines cross, to each line that they lie on."""
        for point in sorted(self._nodes()):
            for number, segment in self._grid.around(point):
                found = nearest(point, *self._lines[number][segment : segment + 2])
                if dist(point, found) <= _TOUCHES:
                    self._add(number, segment, point)


class _Gathered:
    """Points of which those as near as a distance are one."""

    def __init__(self, distance: float) -> None:
        self._distance = distance
        self._kept: defaultdict[Cell, list[Point]] = defaultdict(list)

    def least(self, point: Point) -> Point:
        """Return the least point given before that is so near, or this one."""
        cell = _cell(point, self._distance)
        around = (other for each in _around(cell) for other in self._kept.get(each, ()))
        near = min(
            (other for other in around if dist(point, other) <= self._distance), default=None
        )
        if near is None:
            self._kept[cell].append(point)
        return near or point


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
        if max(dist(point, each) for each in found) > _TOUCHES:
            return None
    ends = (a, b, c, d)
    return next((end for end in ends if dist(end, point) <= _TOUCHES), point)


def _overlap(point: Point, ones: Sequence[Point], others: Sequence[Point]) -> bool:
    """Whether two lines go on in one direction from a point, to these of their corners."""
    for one, other in product(ones, others):
        (x0, y0), (x1, y1) = _chord((point, one)), _chord((point, other))
        apart = abs(x0 * y1 - y0 * x1) / (max(hypot(x0, y0), hypot(x1, y1)) or 1.0)
        if apart <= _TOUCHES and x0 * x1 + y0 * y1 > 0:
            return True
    return False


def _with_axes(roads: Sequence[Road], settings: RoadSettings, distance: float) -> list[Road]:
    """Replace pairs of lanes by their axes; a line that ended at a lane ends at its axis."""
    one_way = [road for road in roads if road.one_way]
    axes = [*_axes(one_way, distance, settings.most_pairs)]
    axis_of = {lane.id: axis for one, other, axis in axes for lane in (one, other)}
    lanes = [road for road in roads if road.id in axis_of]
    grid = _Grid(lanes, [lane.points for lane in lanes], settings)

    def attached(end: Point) -> Point:
        if (found := grid.nearest(end)) is None:
            return end
        segments = pairwise(axis_of[lanes[found[0]].id].points)
        return min((nearest(end, *each) for each in segments), key=lambda at: (dist(end, at), at))

    others = [road for road in roads if road.id not in axis_of]
    for at, road in enumerate(others):
        start, *inner, end = road.points
        others[at] = replace(road, points=(attached(start), *inner, attached(end)))
    return sorted([*others, *(axis for _, _, axis in axes)], key=lambda road: road.id)


def _axes(
    lanes: Sequence[Road], distance: float, most_pairs: int
) -> Iterator[tuple[Road, Road, Road]]:
    """Yield two lanes and their axis: the nearest ones first, each lane once."""
    pairs = [
        (dist(one.points[0], other.points[-1]) + dist(one.points[-1], other.points[0]), one, other)
        for one, others in _nearly_met(lanes, distance, most_pairs)
        for other in others
        if one.id < other.id and _are_lanes(one, other, distance)
    ]
    taken: set[str] = set()
    for _, one, other in sorted(pairs, key=lambda pair: (pair[0], pair[1].id, pair[2].id)):
        if taken.isdisjoint({one.id, other.id}):
            taken |= {one.id, other.id}
            points = _middle(one.points, other.points[::-1])
            yield one, other, Road(one.id, points, other=other.id)


def _nearly_met(
    lanes: Sequence[Road], distance: float, most_pairs: int
) -> Iterator[tuple[Road, Sequence[Road]]]:
    """Yield each lane with those that may begin where it ends, cell by cell of its end."""
    by_start: defaultdict[Cell, list[Road]] = defaultdict(list)
    by_end: defaultdict[Cell, list[Road]] = defaultdict(list)
    for lane in lanes:
        by_start[_cell(lane.points[0], distance)].append(lane)
        by_end[_cell(lane.points[-1], distance)].append(lane)
    for cell, ending in by_end.items():
        beginning = [lane for each in _around(cell) for lane in by_start.get(each, ())]
        if len(ending) * len(beginning) > most_pairs:
            raise CrowdedCell(f"{len(beginning):,} lanes begin where {ending[0].id} ends.")
        yield from ((lane, beginning) for lane in ending)


def _are_lanes(one: Road, other: Road, distance: float) -> bool:
    """Whether two lines lie beside each other, in opposite directions, from end to end."""
    if max(dist(one.points[0], other.points[-1]), dist(one.points[-1], other.points[0])) > distance:
        return False
    (x0, y0), (x1, y1) = (_chord(road.points) for road in (one, other))
    lengths = sorted(polyline(road.points).length for road in (one, other))
    opposite = x0 * x1 + y0 * y1 <= _OPPOSITE * hypot(x0, y0) * hypot(x1, y1)
    return opposite and lengths[0] >= _ALIKE * lengths[1]


def _chord(points: Sequence[Point]) -> Point:
    return points[-1][0] - points[0][0], points[-1][1] - points[0][1]


def _middle(one: Sequence[Point], other: Sequence[Point]) -> tuple[Point, ...]:
    """The line between two of one direction: a point for each vertex of either."""
    shares = sorted({*_shares(one), *_shares(other)})
    ends = ((_at(one, share), _at(other, share)) for share in shares)
    return tuple(((x0 + x1) / 2, (y0 + y1) / 2) for (x0, y0), (x1, y1) in ends)


def _shares(line: Sequence[Point]) -> list[float]:
    """How far along a line each of its points is, from 0 to 1."""
    sums = [0.0, *accumulate(dist(*segment) for segment in pairwise(line))]
    return [each / (sums[-1] or 1.0) for each in sums]


def _at(line: Sequence[Point], share: float) -> Point:
    shares = _shares(line)
    segment = min(bisect_right(shares, share), len(line) - 1) - 1
    start, end = shares[segment], shares[segment + 1]
    part = (share - start) / ((end - start) or 1.0)
    (x0, y0), (x1, y1) = line[segment : segment + 2]
    return x0 + part * (x1 - x0), y0 + part * (y1 - y0)


def _cell(point: Point, size: float) -> Cell:
    return floor(point[0] / size), floor(point[1] / size)


def _around(cell: Cell) -> Iterator[Cell]:
    return ((cell[0] + i, cell[1] + j) for i, j in product((-1, 0, 1), repeat=2))
