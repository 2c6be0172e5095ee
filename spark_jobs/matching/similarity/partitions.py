"""Partitions of objects by count, with copies of the objects beyond their borders.

Objects touch *joints*, and *keys* that both sides have: objects that touch the same one are
candidates or neighbours of each other. The width of a border is a number of such steps. Steps start
at joints and keys touched from two partitions, so the work is proportional to the length of the
borders. Touches and objects are hashed, because numbers are joined faster than texts; a collision
only adds a copy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit

__all__ = [
    "COPIES",
    "Cell",
    "Counts",
    "assign_owners",
    "copies",
    "partition_of",
    "split",
    "starts_of",
    "with_copies",
]

COPIES: Final = "partition int, number long"

_MAX_PARTITIONS: Final = 1_000
_BOTH: Final = -1
"""Represents both sides: they share keys, but no joints."""
_COUNTED_BITS: Final = 14
"""Bits of positions in a cell that one pass counts, which limits the counts on the driver."""


class Cell(NamedTuple):
    """Positions from `start` on that differ only in their last `bits`."""

    start: int
    bits: int


class Counts:
    """The numbers of objects by position, counted in cells of equal size."""

    def __init__(self, counts: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in sorted(counts)]
        self._sums = [0, *accumulate(count for _, count in sorted(counts))]

    def within(self, cell: Cell) -> int:
        first, end = (
            bisect_left(self._starts, at) for at in (cell.start, cell.start + (1 << cell.bits))
        )
        return self._sums[end] - self._sums[first]


def assign_owners(objects: DataFrame, starts: Sequence[int]) -> DataFrame:
    """Assign each object to the one partition that owns it: adds ``partition`` and ``owned``."""
    placed = objects.withColumn("partition", partition_of("position", starts))
    return placed.withColumn("owned", f.lit(True))


def with_copies(placed: DataFrame, copied: DataFrame, spec: SimilaritySpec) -> DataFrame:
    """Add to objects, with the partitions that own them, their `copies` in other partitions.

    Raises:
        InputUnfit: A partition would have more objects than the limit: too many are similar.
    """
    # Before records are joined: each can be in all partitions.
    _check_sizes(placed.select("partition").unionByName(copied.select("partition")), spec)
    copied_objects = (
        placed.drop("partition").join(copied, "number").withColumn("owned", f.lit(False))
    )
    return placed.unionByName(copied_objects)


def partition_of(position: str, starts: Sequence[int]) -> Column:
    """Return the number of the last start that is not after a position, by binary search.

    Args:
        position: The name of the column.
        starts: The starts, in ascending order; earlier positions are also in the first partition.
    """
    # Starts are one literal: an expression that grows with their number overflows Spark's stack.
    values = f.lit(np.array(starts, np.int64))
    bits = range(len(starts).bit_length())
    steps = f.lit(np.array([1 << bit for bit in reversed(bits)], np.int32))

    def advance(number: Column, step: Column) -> Column:
        at = number + step
        return f.when(f.get(values, at) <= f.col(position), at).otherwise(number)

    return f.aggregate(steps, f.lit(0), advance)


def _check_sizes(placed: DataFrame, spec: SimilaritySpec) -> None:
    sizes = placed.groupBy("partition").count().agg(f.max("count")).first()
    largest = 0 if sizes is None else sizes[0] or 0
    if largest > spec.limits.partition_objects:
        raise InputUnfit(
            f"A partition has {largest:,} objects, and limits.partition_objects is "
            f"{spec.limits.partition_objects:,}: too many have equal keys, or lie at one place."
        )


def starts_of(objects: DataFrame, spec: SimilaritySpec) -> list[int]:
    """Return the first positions of partitions, in ascending order.

    A cut depends only on the objects around it, so changes elsewhere do not move it.
    """
    ends = objects.agg(f.min("position"), f.max("position"), f.count("*")).first()
    if ends is None or ends[0] is None:
        return [0]
    lowest, highest, count = ends
    limit = max(spec.partition, 2 * count // _MAX_PARTITIONS)
    bits = (lowest ^ highest).bit_length()
    cells, starts = [Cell(lowest >> bits << bits, bits)], list[int]()
    while cells:
        counted_bits = max(0, cells[0].bits - _COUNTED_BITS)
        counts = Counts(_count(objects, cells, counted_bits))
        heavy: list[Cell] = []
        for cell in cells:
            starts += split(cell, counts.within, limit, counted_bits, heavy)
        cells = heavy
    return sorted(starts)


def _count(objects: DataFrame, cells: Sequence[Cell], bits: int) -> list[tuple[int, int]]:
    """Count the objects of cells, by subcells of `bits` bits."""
    cell_number = f.shiftright("position", cells[0].bits)
    in_cells = objects.where(cell_number.isin([cell.start >> cell.bits for cell in cells]))
    rows = in_cells.groupBy(f.shiftright("position", bits).alias("at")).count().collect()
    return [(row["at"] << bits, row["count"]) for row in rows]


def split(
    cell: Cell, count: Callable[[Cell], int], limit: int, counted_bits: int, heavy: list[Cell]
) -> Iterator[int]:
    """Halve a cell until each part has at most `limit` objects; yield the starts of nonempty parts.

    A part of the counted size that still has more objects goes to `heavy`.
    """
    objects = count(cell)
    if objects <= limit or not cell.bits:
        if objects:
            yield cell.start
    elif cell.bits == counted_bits:
        heavy.append(cell)
    else:
        bits = cell.bits - 1
        for start in (cell.start, cell.start + (1 << bits)):
            yield from split(Cell(start, bits), count, limit, counted_bits, heavy)


def copies(placed: DataFrame, border: int) -> DataFrame:
    """Return objects by near partitions that do not own them: ``partition``, ``number``.

    Args:
        placed: Objects with the partitions that own them.
        border: The width of a partition's border, in steps from object to object.
    """
    touches = _touches(placed)
    ends = touches.groupBy("touch").agg(f.min("owner").alias("a"), f.max("owner").alias("b"))
    crossing = touches.join(ends.where("a != b").select("touch"), "touch")
    reached = _reach(crossing.select(f.col("owner").alias("partition"), "touch"), crossing)
    for _ in range(border - 1):
        touched = reached.join(touches.select("number", "touch"), "number")
        reached = _reach(touched.select("partition", "touch"), touches)
    return reached


def _touches(placed: DataFrame) -> DataFrame:
    """Return the touches of each object: ``number``, ``owner``, ``touch``.

    A key of only one side gives no candidates, however many objects have it.
    """
    objects = placed.select("number", f.col("partition").alias("owner"), "side", "keys", "joints")
    hashed = f.transform("keys", lambda key: f.xxhash64(f.lit(_BOTH), key))
    keys = objects.select("number", "owner", "side", f.explode(hashed).alias("touch"))
    sides = keys.groupBy("touch").agg(f.min("side").alias("a"), f.max("side").alias("b"))
    shared = keys.join(sides.where("a != b").select("touch"), "touch")
    joints = objects.select("number", "owner", f.explode("joints").alias("touch"))
    return joints.unionByName(shared.select("number", "owner", "touch"))


def _reach(touched: DataFrame, touches: DataFrame) -> DataFrame:
    """Return objects of other partitions by touches, including the objects of the last step."""
    near = touched.distinct().join(touches, "touch").where("partition != owner")
    return near.select("partition", "number").distinct()
