"""Spatial indexes of segments and points of road networks, by the cells of a grid."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from math import dist, floor
from typing import Final, TypeAlias

from spark_jobs.matching.similarity.geometry import Cell, Point, cells, nearest, polyline
from spark_jobs.matching.similarity.lines import Road, RoadSettings, limit_error
from spark_jobs.runner.port import InputUnfit

__all__ = ["TOUCHES", "MergedPoints", "Segment", "SegmentGrid", "cell_of", "cells_around"]

Segment: TypeAlias = tuple[int, int]
"""The number of a line, and of one of its segments."""

TOUCHES: Final = 1e-6
"""Smaller distances count as 0."""
_MAX_CELLS: Final = 10_000


class SegmentGrid:
    """Segments of lines by the cells within their reach; ends can be moved within the reach.

    Raises:
        InputUnfit: More segments are in one cell than the settings allow, or one segment is in too
            many cells.
    """

    def __init__(
        self,
        roads: Sequence[Road],
        lines: Sequence[Sequence[Point]],
        settings: RoadSettings,
    ) -> None:
        self._roads = roads
        self._lines = lines
        self._reach = max(settings.snap, TOUCHES)
        self._size = max(_mean_length(lines), 2 * self._reach)
        self._cells: defaultdict[Cell, list[Segment]] = defaultdict(list)
        for number, line in enumerate(lines):
            for at, segment in enumerate(pairwise(line)):
                near = self._reach + TOUCHES
                near_cells = cells(polyline(segment), self._size, near, _MAX_CELLS)
                if near_cells is None:
                    raise limit_error(
                        f"{roads[number].id} is too long for its network", "block_pairs"
                    )
                for cell in near_cells:
                    self._cells[cell].append((number, at))
        self._max_pairs = settings.max_pairs
        self._all_pairs = settings.all_pairs
        for segments in self._cells.values():
            if _pairs_of(segments) > self._max_pairs:
                raise self._crowd_error(segments, f"{len(segments):,} segments lie")

    def pairs(self) -> Iterator[tuple[Segment, Segment]]:
        """Yield segments of two lines that share a cell, each pair once, in ascending order.

        Only the pairs of one segment are in memory at a time.

        Raises:
            InputUnfit: All cells together have more pairs than the settings allow.
        """
        total = sum(map(_pairs_of, self._cells.values()))
        if total > self._all_pairs:
            raise limit_error(f"{total:,} pairs of segments are near", "pairs")
        cells_of: defaultdict[Segment, list[Cell]] = defaultdict(list)
        for cell, segments in self._cells.items():
            for segment in segments:
                cells_of[segment].append(cell)
        for one in sorted(cells_of):
            shared = (self._cells[cell] for cell in cells_of[one])
            # The segments of a cell are in ascending order.
            later = (segments[bisect_right(segments, one) :] for segments in shared)
            others = {other for segments in later for other in segments if other[0] != one[0]}
            yield from ((one, other) for other in sorted(others))

    def check_points(self, points: Iterable[Point]) -> None:
        """Check how often ends and crossings of lines would be compared with nearby segments.

        Raises:
            InputUnfit: More often in one cell, or in all cells, than the settings allow.
        """
        total = 0
        for cell, count in Counter(cell_of(point, self._size) for point in points).items():
            segments = self._cells.get(cell, ())
            total += count * len(segments)
            if count * len(segments) > self._max_pairs:
                raise self._crowd_error(segments, f"{count:,} ends and crossings lie")
        if total > self._all_pairs:
            pairs = f"{total:,} pairs of an end or a crossing and a segment"
            raise limit_error(f"{pairs} are near", "pairs")

    def _crowd_error(self, segments: Sequence[Segment], reason: str) -> InputUnfit:
        return limit_error(f"{reason} where {self._roads[segments[0][0]].id} does", "block_pairs")

    def around(self, point: Point) -> Sequence[Segment]:
        """Return the segments that may be near a point."""
        return self._cells.get(cell_of(point, self._size), ())

    def nearest(self, point: Point, excluded: int | None = None) -> tuple[int, int, Point] | None:
        """Return the nearest point within reach on a line but `excluded`: line, segment, point."""
        points = (
            (number, at, nearest(point, *self._lines[number][at : at + 2]))
            for number, at in self.around(point)
            if number != excluded
        )
        hits = ((dist(point, candidate[-1]), *candidate) for candidate in points)
        best = min((hit for hit in hits if hit[0] <= self._reach), default=None)
        return best and best[1:]


def _pairs_of(segments: Sequence[Segment]) -> int:
    return len(segments) * (len(segments) - 1) // 2


def _mean_length(lines: Sequence[Sequence[Point]]) -> float:
    lengths = [dist(*segment) for line in lines for segment in pairwise(line)]
    return sum(lengths) / max(1, len(lengths))


class MergedPoints:
    """Merges points that are within a distance."""

    def __init__(self, distance: float) -> None:
        self._distance = distance
        self._points: defaultdict[Cell, list[Point]] = defaultdict(list)

    def representative(self, point: Point) -> Point:
        """Return the least earlier point within the distance, or this point."""
        cell = cell_of(point, self._distance)
        around = (other for near in cells_around(cell) for other in self._points.get(near, ()))
        representative = min(
            (other for other in around if dist(point, other) <= self._distance), default=None
        )
        if representative is None:
            self._points[cell].append(point)
        return representative or point


def cell_of(point: Point, size: float) -> Cell:
    """Return the cell of this size, in the unit of the coordinates, that a point lies in."""
    return floor(point[0] / size), floor(point[1] / size)


def cells_around(cell: Cell) -> Iterator[Cell]:
    """Return the nine cells within one step of a cell, including itself."""
    return ((cell[0] + i, cell[1] + j) for i, j in product((-1, 0, 1), repeat=2))
