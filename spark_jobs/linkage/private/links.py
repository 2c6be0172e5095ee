"""The order of a run, how its blocks are compared, and its links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.linkage.private.blocks import BlockComparison
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.vectors import Order

__all__ = ["assigned", "comparison_of", "first_come", "linked", "order_in"]

_WORD_BITS: Final = 64
_ENDS: Final = ("left_party", "left", "right_party", "right")


def order_in(frequencies: DataFrame, records: int) -> Order:
    """Read the common order from what the stage of that name gave."""
    rows = frequencies.collect()
    return Order(np.array([row["frequency"] for row in rows], dtype=np.int64).sum(axis=0), records)


def comparison_of(spec: PrivateSpec, order: Order) -> BlockComparison:
    """Return how blocks in an order are compared."""
    limits = ThresholdTables.of(
        spec.threshold, order.words * _WORD_BITS, length=spec.filters.length
    )
    return BlockComparison(limits, order.by_selectivity, spec.filters, spec.top_k)


def linked(matches: DataFrame, names: list[str], top_k: int | None) -> DataFrame:
    """Name owners and similarities, the most similar pairs first; keep the best partners only."""
    known = f.array(*[f.lit(name) for name in names])
    # Quotients of whole numbers this small are equal as doubles only if they are equal.
    links = matches.select(
        known[f.col("left_party")].alias("left_party"),
        "left",
        known[f.col("right_party")].alias("right_party"),
        "right",
        (f.col("overlap") / f.col("union")).alias("similarity"),
    )
    if top_k is not None:
        of = Window.partitionBy("left_party", "left", "right_party")
        rank = f.row_number().over(of.orderBy(f.desc("similarity"), "right"))
        links = links.withColumn("rank", rank).where(f.col("rank") <= top_k).drop("rank")
    return links.orderBy(*_best_first())


def _best_first() -> list[Column]:
    return [f.desc("similarity"), *map(f.col, _ENDS)]


def assigned(links: DataFrame) -> DataFrame:
    """Leave each record one partner of each other owner at most: the most similar pair first.

    Greedy, and stable in the sense of Gale and Shapley: no two records that were not linked are
    both more similar to each other than to what they were linked with. Of equally similar pairs the
    one of lower ids comes first, so the result is the same every time. It is not the assignment
    with the greatest sum, which would part good pairs to make room for mediocre ones.

    Who is linked depends on all pairs before, so one task goes through them in order. Spark sorts
    them, on the disk if they are many; the task holds one batch, and each end that is taken: of
    every record at most one for each other owner, however many pairs there are. That is in the
    forecast of memory.
    """
    sorted_ = links.repartition(1).sortWithinPartitions(*_best_first())
    return sorted_.mapInArrow(first_come, links.schema)


def first_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the links none of whose ends an earlier, better link took."""
    taken: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for batch in batches:
        free = []
        for one, left, other, right in zip(*(batch[n].to_pylist() for n in _ENDS), strict=True):
            lefts, rights = taken[one, other], taken[other, one]
            free.append(left not in lefts and right not in rights)
            if free[-1]:
                lefts.add(left)
                rights.add(right)
        yield batch.filter(pa.array(free, pa.bool_()))
