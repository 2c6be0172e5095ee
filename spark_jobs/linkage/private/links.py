"""The order of a run, how its blocks are compared, and its links."""

from __future__ import annotations

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.linkage.private.blocks import BlockComparison
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.vectors import Order

__all__ = ["comparison_of", "in_order", "linked", "order_in"]

_WORD_BITS = 64


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


def in_order(links: DataFrame) -> DataFrame:
    """Sort the links of each partition as `linked` sorts all of them."""
    return links.sortWithinPartitions(*_best_first())


def _best_first() -> list[Column]:
    names = ("left_party", "left", "right_party", "right")
    return [f.desc("similarity"), *map(f.col, names)]
