"""What a run keeps, and linking new records with it: the answers are those of a batch.

The order is frozen: any order that both sides share is right, an old one only spares less. Places
of positions that nobody used then are behind the others, so new records may use them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.linkage.private.blocks import Comparison
from spark_jobs.linkage.private.comparing import blocks_of, compared, spans_of, tasks_between
from spark_jobs.linkage.private.limits import Limits
from spark_jobs.linkage.private.records import checked, united
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.vectors import Order
from spark_jobs.runner.port import InputUnfit

__all__ = ["Stored", "comparison_of", "in_order", "linked", "order_in"]

_WORD_BITS = 64


def order_in(frequencies: DataFrame, records: int) -> Order:
    """Read the common order from what the stage of that name gave."""
    rows = frequencies.collect()
    return Order(np.array([row["frequency"] for row in rows], dtype=np.int64).sum(axis=0), records)


def comparison_of(spec: PrivateSpec, order: Order) -> Comparison:
    """Return how blocks in an order are compared."""
    limits = Limits.of(spec.threshold, order.words * _WORD_BITS, length=spec.filters.length)
    return Comparison(limits, order.telling, spec.filters, spec.top_k)


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
        place = f.row_number().over(of.orderBy(f.desc("similarity"), "right"))
        links = links.withColumn("place", place).where(f.col("place") <= top_k).drop("place")
    return links.orderBy(*_best_first())


def in_order(links: DataFrame) -> DataFrame:
    """Sort the links of each partition as `linked` sorts all of them."""
    return links.sortWithinPartitions(*_best_first())


def _best_first() -> list[Column]:
    names = ("left_party", "left", "right_party", "right")
    return [f.desc("similarity"), *map(f.col, names)]


@dataclass(frozen=True, slots=True)
class Stored:
    """The reference that a run has kept.

    Attributes:
        blocks: Its blocks of one owner.
        order: Its order.
        spec: What was asked of it.
        name: The owner.
    """

    blocks: DataFrame
    order: Order
    spec: PrivateSpec
    name: str

    def link(self, records: DataFrame, name: str = "new") -> DataFrame:
        """Link new records, the left ones, with the reference.

        Args:
            records: ``id`` and the field of encodings, as in the run.
            name: What they are called in the links.

        Raises:
            InputUnfit: They cannot be compared.
        """
        new = united({name: records}, self.spec.bits)
        rows = checked(new, [name])[name]
        if (first := new.first()) and len(first["bits"]) * 8 != len(self.order.frequency):
            raise InputUnfit(f"The reference has encodings of {len(self.order.frequency)} bits.")
        blocks = blocks_of(new, self.order, rows).localCheckpoint()
        named = f.concat(f.lit("kept "), "block")  # both may be of a first owner, with its ids
        theirs = self.blocks.withColumns({"party": f.lit(1), "block": named})
        spans = [replace(span, party=1) for span in spans_of(theirs)]
        comparison = comparison_of(self.spec, self.order)
        tasks = tasks_between([*spans_of(blocks), *spans], comparison)
        matches, _ = compared(blocks.unionByName(theirs), tasks, comparison, lambda *_: None)
        frame = records.sparkSession.createDataFrame(matches)
        return linked(frame, [name, self.name], self.spec.top_k)
