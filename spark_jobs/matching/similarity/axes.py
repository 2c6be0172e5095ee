"""Axes of roads: two parallel one-way lines become the line in their middle."""

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
from spark_jobs.matching.similarity.lines import Road, RoadSettings, limit_error

__all__ = ["with_axes"]

_MAX_COSINE: Final = -0.97
"""Maximum cosine of the directions of two lanes: at least 166 degrees."""
_MIN_LENGTH_RATIO: Final = 0.8
"""Minimum ratio of the lengths of two lanes, the shorter to the longer."""


def with_axes(roads: Sequence[Road], settings: RoadSettings, distance: float) -> list[Road]:
    """Replace pairs of lanes by their axes; a line that ended at a lane ends at its axis.

    Args:
        roads: Roads in the order of ids.
        distance: Maximum distance of two lanes at either end, in the unit of the coordinates.

    Returns:
        The roads in the order of ids; an axis has the id of its first lane.

    Raises:
        InputUnfit: More lanes, or ends of lines, are at one place or at all places together than
            the settings allow.
    """
    one_way = [road for road in roads if road.one_way]
    axes = [*_axes(one_way, distance, settings)]
    axis_of = {lane.id: axis for one, other, axis in axes for lane in (one, other)}
    lanes = [road for road in roads if road.id in axis_of]
    grid = SegmentGrid(lanes, [lane.points for lane in lanes], settings)

    def attach(end: Point) -> Point:
        if (hit := grid.nearest(end)) is None:
            return end
        segments = pairwise(axis_of[lanes[hit[0]].id].points)
        return min((nearest(end, *part) for part in segments), key=lambda at: (dist(end, at), at))

    remaining = [road for road in roads if road.id not in axis_of]
    grid.check_points(road.points[at] for road in remaining for at in (0, -1))
    for at, road in enumerate(remaining):
        start, *inner, end = road.points
        remaining[at] = replace(road, points=(attach(start), *inner, attach(end)))
    return sorted([*remaining, *(axis for _, _, axis in axes)], key=lambda road: road.id)


def _axes(
    lanes: Sequence[Road], distance: float, settings: RoadSettings
) -> Iterator[tuple[Road, Road, Road]]:
    """Yield two lanes and their axis: the nearest lanes first, each lane once."""
    pairs = [
        (dist(one.points[0], other.points[-1]) + dist(one.points[-1], other.points[0]), one, other)
        for one, others in _lanes_near_ends(lanes, distance, settings)
        for other in others
        if one.id < other.id and _are_lanes(one, other, distance)
    ]
    used: set[str] = set()
    for _, one, other in sorted(pairs, key=lambda pair: (pair[0], pair[1].id, pair[2].id)):
        if used.isdisjoint({one.id, other.id}):
            used |= {one.id, other.id}
            points = _middle(one.points, other.points[::-1])
            yield one, other, Road(one.id, points, other=other.id)


def _lanes_near_ends(
    lanes: Sequence[Road], distance: float, settings: RoadSettings
) -> Iterator[tuple[Road, Sequence[Road]]]:
    """Yield each lane with the lanes that may start where it ends, by the cells of ends."""
    by_start: defaultdict[Cell, list[Road]] = defaultdict(list)
    by_end: defaultdict[Cell, list[Road]] = defaultdict(list)
    for lane in lanes:
        by_start[cell_of(lane.points[0], distance)].append(lane)
        by_end[cell_of(lane.points[-1], distance)].append(lane)
    total = 0
    for cell, ending in by_end.items():
        starting = [lane for near in cells_around(cell) for lane in by_start.get(near, ())]
        total += len(ending) * len(starting)
        if len(ending) * len(starting) > settings.max_pairs:
            reason = f"{len(starting):,} lanes begin where {ending[0].id} ends"
            raise limit_error(reason, "block_pairs")
        if total > settings.all_pairs:
            reason = f"{total:,} pairs of a lane and one where it ends are near"
            raise limit_error(reason, "pairs")
        yield from ((lane, starting) for lane in ending)


def _are_lanes(one: Road, other: Road, distance: float) -> bool:
    """Whether two lines are parallel, in opposite directions, from end to end."""
    if max(dist(one.points[0], other.points[-1]), dist(one.points[-1], other.points[0])) > distance:
        return False
    (x0, y0), (x1, y1) = (chord(road.points) for road in (one, other))
    lengths = sorted(polyline(road.points).length for road in (one, other))
    opposite = x0 * x1 + y0 * y1 <= _MAX_COSINE * hypot(x0, y0) * hypot(x1, y1)
    return opposite and lengths[0] >= _MIN_LENGTH_RATIO * lengths[1]


def _middle(one: Sequence[Point], other: Sequence[Point]) -> tuple[Point, ...]:
    """Return the line between two lines of one direction: a point for each vertex of either."""
    ours, theirs = _shares(one), _shares(other)
    ends = (
        (_at(one, ours, share), _at(other, theirs, share)) for share in sorted({*ours, *theirs})
    )
    return tuple(((x0 + x1) / 2, (y0 + y1) / 2) for (x0, y0), (x1, y1) in ends)


def _shares(line: Sequence[Point]) -> list[float]:
    """Return each point's share of the way along a line, from 0 to 1."""
    sums = [0.0, *accumulate(dist(*segment) for segment in pairwise(line))]
    return [length / (sums[-1] or 1.0) for length in sums]


def _at(line: Sequence[Point], shares: Sequence[float], share: float) -> Point:
    segment = min(bisect_right(shares, share), len(line) - 1) - 1
    start, end = shares[segment], shares[segment + 1]
    part = (share - start) / ((end - start) or 1.0)
    (x0, y0), (x1, y1) = line[segment : segment + 2]
    return x0 + part * (x1 - x0), y0 + part * (y1 - y0)
