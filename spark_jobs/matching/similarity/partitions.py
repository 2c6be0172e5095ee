"""Partitions of objects by count, with copies of those beyond their borders.

Objects touch *joints*, and *keys* that both sides have: those that touch the same are candidates or
neighbours of each other. A border is so many such steps wide. Steps begin at what is touched from
two partitions, so the work follows the length of the borders. Touches and objects are hashes there,
as numbers are joined faster than texts; two that are equal by accident only make a copy too many.
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
    "copies",
    "owned",
    "partition_of",
    "split",
    "starts_of",
    "with_copies",
]

COPIES: Final = "partition int, number long"

_MOST_PARTITIONS: Final = 1_000
_BOTH: Final = -1
"""Stands for both sides: they have keys in common, and no joints."""
_COUNTED_BITS: Final = 14
"""Of positions in a cell, in one pass over the objects: so many counts go to the driver."""


class Cell(NamedTuple):
    """Positions from `start` on that differ in their last `bits` only."""

    start: int
    bits: int


class Counts:
    """How many objects have a position: counted by cells of equal size."""

    def __init__(self, counted: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in sorted(counted)]
        self._sums = [0, *accumulate(count for _, count in sorted(counted))]

    def within(self, cell: Cell) -> int:
        first, end = (
            bisect_left(self._starts, at) for at in (cell.start, cell.start + (1 << cell.bits))
        )
        return self._sums[end] - self._sums[first]


def owned(objects: DataFrame, starts: Sequence[int]) -> DataFrame:
    """Give each object the one partition that owns it: adds ``partition`` and ``owned``."""
    placed = objects.withColumn("partition", partition_of("position", starts))
    return placed.withColumn("owned", f.lit(True))


def with_copies(placed: DataFrame, copied: DataFrame, spec: SimilaritySpec) -> DataFrame:
    """Add to objects, with the partitions that own them, their `copies` in others.

    Raises:
        InputUnfit: A partition would have more objects than the limit: too much is alike.
    """
    # Before records are joined: each may be in as many partitions as there are.
    _check_sizes(placed.select("partition").unionByName(copied.select("partition")), spec)
    elsewhere = placed.drop("partition").join(copied, "number").withColumn("owned", f.lit(False))
    return placed.unionByName(elsewhere)


def partition_of(position: str, starts: Sequence[int]) -> Column:
    """Return the number of the last start that is not after a position: a binary search.

    Args:
        position: The name of the column.
        starts: In ascending order; what is before the first one is in its partition as well.
    """
    # Starts are one literal: an expression that grows with their number overflows Spark's stack.
    values = f.lit(np.array(starts, np.int64))
    bits = range(len(starts).bit_length())
    steps = f.lit(np.array([1 << bit for bit in reversed(bits)], np.int32))

    def further(number: Column, step: Column) -> Column:
        at = number + step
        return f.when(f.get(values, at) <= f.col(position), at).otherwise(number)

    return f.aggregate(steps, f.lit(0), further)


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

    They follow from the objects around a cut alone: a change elsewhere moves none of them.
    """
    ends = objects.agg(f.min("position"), f.max("position"), f.count("*")).first()
    if ends is None or ends[0] is None:
        return [0]
    least, greatest, count = ends
    most = max(spec.partition, 2 * count // _MOST_PARTITIONS)
    bits = (least ^ greatest).bit_length()
    cells, starts = [Cell(least >> bits << bits, bits)], list[int]()
    while cells:
        counted_bits = max(0, cells[0].bits - _COUNTED_BITS)
        counts = Counts(_counted(objects, cells, counted_bits))
        heavy: list[Cell] = []
        for cell in cells:
            starts += split(cell, counts.within, most, counted_bits, heavy)
        cells = heavy
    return sorted(starts)


def _counted(objects: DataFrame, cells: Sequence[Cell], bits: int) -> list[tuple[int, int]]:
    """Count the objects of cells, by cells of so many bits."""
    whole = f.shiftright("position", cells[0].bits)
    there = objects.where(whole.isin([cell.start >> cell.bits for cell in cells]))
    rows = there.groupBy(f.shiftright("position", bits).alias("at")).count().collect()
    return [(row["at"] << bits, row["count"]) for row in rows]


def split(
    cell: Cell, count: Callable[[Cell], int], most: int, counted_bits: int, heavy: list[Cell]
) -> Iterator[int]:
    """Halve a cell until each has at most so many objects; yield the starts of those with any.

    A cell that is as small as those that were counted, and still has more, goes to `heavy`.
    """
    objects = count(cell)
    if objects <= most or not cell.bits:
        if objects:
            yield cell.start
    elif cell.bits == counted_bits:
        heavy.append(cell)
    else:
        bits = cell.bits - 1
        for start in (cell.start, cell.start + (1 << bits)):
            yield from split(Cell(start, bits), count, most, counted_bits, heavy)


def copies(placed: DataFrame, border: int) -> DataFrame:
    """Return objects by the partitions that are near, but own them not: ``partition``, ``number``.

    Args:
        placed: Objects with the partitions that own them.
        border: How many steps from object to object the border of a partition is wide.
    """
    touches = _touches(placed)
    ends = touches.groupBy("touch").agg(f.min("owner").alias("a"), f.max("owner").alias("b"))
    crossing = touches.join(ends.where("a != b").select("touch"), "touch")
    reached = _reached(crossing.select(f.col("owner").alias("partition"), "touch"), crossing)
    for _ in range(border - 1):
        touched = reached.join(touches.select("number", "touch"), "number")
        reached = _reached(touched.select("partition", "touch"), touches)
    return reached


def _touches(placed: DataFrame) -> DataFrame:
    """What each object touches: ``number``, ``owner``, ``touch``.

    A key of one side alone makes no candidates, however many objects have it.
    """
    objects = placed.select("number", f.col("partition").alias("owner"), "side", "keys", "joints")
    hashed = f.transform("keys", lambda key: f.xxhash64(f.lit(_BOTH), key))
    keys = objects.select("number", "owner", "side", f.explode(hashed).alias("touch"))
    sides = keys.groupBy("touch").agg(f.min("side").alias("a"), f.max("side").alias("b"))
    shared = keys.join(sides.where("a != b").select("touch"), "touch")
    joints = objects.select("number", "owner", f.explode("joints").alias("touch"))
    return joints.unionByName(shared.select("number", "owner", "touch"))


def _reached(touched: DataFrame, touches: DataFrame) -> DataFrame:
    """Objects of other partitions by what is touched; it includes those that it was reached by."""
    near = touched.distinct().join(touches, "touch").where("partition != owner")
    return near.select("partition", "number").distinct()
