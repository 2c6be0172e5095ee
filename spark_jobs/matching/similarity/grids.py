"""Segments and points of road networks, found by the cells of a grid that they are near."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from math import dist, floor
from typing import Final, TypeAlias

from spark_jobs.matching.similarity.geometry import Cell, Point, cells, nearest, polyline
from spark_jobs.matching.similarity.lines import Road, RoadSettings, exceeded
from spark_jobs.runner.port import InputUnfit

__all__ = ["TOUCHES", "Gathered", "Segment", "SegmentGrid", "cell_of", "cells_around"]

Segment: TypeAlias = tuple[int, int]
"""The number of a line, and that of one of its segments."""

TOUCHES: Final = 1e-6
"""A distance of less is none."""
_MOST_CELLS: Final = 10_000


class SegmentGrid:
    """Segments of lines by the cells that they come near; ends of lines may be moved as far.

    Raises:
        InputUnfit: More segments are in one cell than the settings allow, or one is in too many.
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
                touched = cells(polyline(segment), self._size, near, _MOST_CELLS)
                if touched is None:
                    raise exceeded(f"{roads[number].id} is too long for its network", "block_pairs")
                for cell in touched:
                    self._cells[cell].append((number, at))
        self._most_pairs = settings.most_pairs
        self._all_pairs = settings.all_pairs
        for segments in self._cells.values():
            if _pairs_of(segments) > self._most_pairs:
                raise self._crowded(segments, f"{len(segments):,} segments lie")

    def pairs(self) -> Iterator[tuple[Segment, Segment]]:
        """Yield segments of two lines that share a cell, each pair once, in ascending order.

        Only those of one segment are in memory at the same time.

        Raises:
            InputUnfit: All cells together have more pairs than the settings allow.
        """
        total = sum(map(_pairs_of, self._cells.values()))
        if total > self._all_pairs:
            raise exceeded(f"{total:,} pairs of segments are near", "pairs")
        cells_of: defaultdict[Segment, list[Cell]] = defaultdict(list)
        for cell, segments in self._cells.items():
            for segment in segments:
                cells_of[segment].append(cell)
        for one in sorted(cells_of):
            shared = (self._cells[cell] for cell in cells_of[one])
            # The segments of a cell are in ascending order.
            following = (segments[bisect_right(segments, one) :] for segments in shared)
            others = {other for segments in following for other in segments if other[0] != one[0]}
            yield from ((one, other) for other in sorted(others))

    def check_points(self, points: Iterable[Point]) -> None:
        """Check how often ends and crossings of lines would be compared with what is around them.

        Raises:
            InputUnfit: More often in one cell, or in all together, than the settings allow.
        """
        total = 0
        for cell, count in Counter(cell_of(point, self._size) for point in points).items():
            segments = self._cells.get(cell, ())
            total += count * len(segments)
            if count * len(segments) > self._most_pairs:
                raise self._crowded(segments, f"{count:,} ends and crossings lie")
        if total > self._all_pairs:
            pairs = f"{total:,} pairs of an end or a crossing and a segment"
            raise exceeded(f"{pairs} are near", "pairs")

    def _crowded(self, segments: Sequence[Segment], what: str) -> InputUnfit:
        return exceeded(f"{what} where {self._roads[segments[0][0]].id} does", "block_pairs")

    def around(self, point: Point) -> Sequence[Segment]:
        """Return the segments that may be near a point."""
        return self._cells.get(cell_of(point, self._size), ())

    def nearest(self, point: Point, but: int | None = None) -> tuple[int, int, Point] | None:
        """The nearest point on a line other than `but`, within the reach: line, segment, point."""
        points = (
            (number, at, nearest(point, *self._lines[number][at : at + 2]))
            for number, at in self.around(point)
            if number != but
        )
        found = ((dist(point, each[-1]), *each) for each in points)
        best = min((each for each in found if each[0] <= self._reach), default=None)
        return best and best[1:]


def _pairs_of(segments: Sequence[Segment]) -> int:
    return len(segments) * (len(segments) - 1) // 2


def _mean_length(lines: Sequence[Sequence[Point]]) -> float:
    lengths = [dist(*segment) for line in lines for segment in pairwise(line)]
    return sum(lengths) / max(1, len(lengths))


class Gathered:
    """Points of which those as near as a distance are one."""

    def __init__(self, distance: float) -> None:
        self._distance = distance
        self._kept: defaultdict[Cell, list[Point]] = defaultdict(list)

    def least(self, point: Point) -> Point:
        """Return the least point given before that is so near, or this one."""
        cell = cell_of(point, self._distance)
        around = (other for each in cells_around(cell) for other in self._kept.get(each, ()))
        near = min(
            (other for other in around if dist(point, other) <= self._distance), default=None
        )
        if near is None:
            self._kept[cell].append(point)
        return near or point


def cell_of(point: Point, size: float) -> Cell:
    """Return the cell of this size, in the unit of the coordinates, that a point lies in."""
    return floor(point[0] / size), floor(point[1] / size)


def cells_around(cell: Cell) -> Iterator[Cell]:
    """Return the nine cells that are no farther than one step from a cell, with itself."""
    return ((cell[0] + i, cell[1] + j) for i, j in product((-1, 0, 1), repeat=2))
