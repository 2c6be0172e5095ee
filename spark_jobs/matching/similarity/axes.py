"""Axes of roads: two one-way lines beside each other become the line in their middle."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import dist, hypot
from typing import Final

from spark_jobs.matching.similarity.geometry import Cell, Point, chord, nearest, polyline
from spark_jobs.matching.similarity.grids import SegmentGrid, cell_of, cells_around
from spark_jobs.matching.similarity.lines import Road, RoadSettings, exceeded

__all__ = ["with_axes"]

_OPPOSITE: Final = -0.97
"""Cosine of the directions of two lanes: 166 degrees at least."""
_ALIKE: Final = 0.8
"""Of the lengths of two lanes, the shorter by the longer."""


def with_axes(roads: Sequence[Road], settings: RoadSettings, distance: float) -> list[Road]:
    """Replace pairs of lanes by their axes; a line that ended at a lane ends at its axis.

    Args:
        roads: By their ids.
        distance: Between two lanes at either end, in the unit of the coordinates.

    Returns:
        The roads, by their ids; an axis has that of its first lane.

    Raises:
        InputUnfit: More lanes, or ends of lines, are at one place than the settings allow, or in
            all places together.
    """
    one_way = [road for road in roads if road.one_way]
    axes = [*_axes(one_way, distance, settings)]
    axis_of = {lane.id: axis for one, other, axis in axes for lane in (one, other)}
    lanes = [road for road in roads if road.id in axis_of]
    grid = SegmentGrid(lanes, [lane.points for lane in lanes], settings)

    def attached(end: Point) -> Point:
        if (found := grid.nearest(end)) is None:
            return end
        segments = pairwise(axis_of[lanes[found[0]].id].points)
        return min((nearest(end, *each) for each in segments), key=lambda at: (dist(end, at), at))

    others = [road for road in roads if road.id not in axis_of]
    grid.check_points(road.points[at] for road in others for at in (0, -1))
    for at, road in enumerate(others):
        start, *inner, end = road.points
        others[at] = replace(road, points=(attached(start), *inner, attached(end)))
    return sorted([*others, *(axis for _, _, axis in axes)], key=lambda road: road.id)


def _axes(
    lanes: Sequence[Road], distance: float, settings: RoadSettings
) -> Iterator[tuple[Road, Road, Road]]:
    """Yield two lanes and their axis: the nearest ones first, each lane once."""
    pairs = [
        (dist(one.points[0], other.points[-1]) + dist(one.points[-1], other.points[0]), one, other)
        for one, others in _nearly_met(lanes, distance, settings)
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
    lanes: Sequence[Road], distance: float, settings: RoadSettings
) -> Iterator[tuple[Road, Sequence[Road]]]:
    """Yield each lane with those that may begin where it ends, cell by cell of its end."""
    by_start: defaultdict[Cell, list[Road]] = defaultdict(list)
    by_end: defaultdict[Cell, list[Road]] = defaultdict(list)
    for lane in lanes:
        by_start[cell_of(lane.points[0], distance)].append(lane)
        by_end[cell_of(lane.points[-1], distance)].append(lane)
    total = 0
    for cell, ending in by_end.items():
        beginning = [lane for each in cells_around(cell) for lane in by_start.get(each, ())]
        total += len(ending) * len(beginning)
        if len(ending) * len(beginning) > settings.most_pairs:
            begin = f"{len(beginning):,} lanes begin where {ending[0].id} ends"
            raise exceeded(begin, "block_pairs")
        if total > settings.all_pairs:
            near = f"{total:,} pairs of a lane and one where it ends are near"
            raise exceeded(near, "pairs")
        yield from ((lane, beginning) for lane in ending)


def _are_lanes(one: Road, other: Road, distance: float) -> bool:
    """Whether two lines lie beside each other, in opposite directions, from end to end."""
    if max(dist(one.points[0], other.points[-1]), dist(one.points[-1], other.points[0])) > distance:
        return False
    (x0, y0), (x1, y1) = (chord(road.points) for road in (one, other))
    lengths = sorted(polyline(road.points).length for road in (one, other))
    opposite = x0 * x1 + y0 * y1 <= _OPPOSITE * hypot(x0, y0) * hypot(x1, y1)
    return opposite and lengths[0] >= _ALIKE * lengths[1]


def _middle(one: Sequence[Point], other: Sequence[Point]) -> tuple[Point, ...]:
    """The line between two of one direction: a point for each vertex of either."""
    ours, theirs = _shares(one), _shares(other)
    ends = (
        (_at(one, ours, share), _at(other, theirs, share)) for share in sorted({*ours, *theirs})
    )
    return tuple(((x0 + x1) / 2, (y0 + y1) / 2) for (x0, y0), (x1, y1) in ends)


def _shares(line: Sequence[Point]) -> list[float]:
    """How far along a line each of its points is, from 0 to 1."""
    sums = [0.0, *accumulate(dist(*segment) for segment in pairwise(line))]
    return [each / (sums[-1] or 1.0) for each in sums]


def _at(line: Sequence[Point], shares: Sequence[float], share: float) -> Point:
    segment = min(bisect_right(shares, share), len(line) - 1) - 1
    start, end = shares[segment], shares[segment + 1]
    part = (share - start) / ((end - start) or 1.0)
    (x0, y0), (x1, y1) = line[segment : segment + 2]
    return x0 + part * (x1 - x0), y0 + part * (y1 - y0)
