"""The forecast of a run, and its stages: each follows from inputs and what earlier ones kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.linkage.private.blocks import BlockComparison
from spark_jobs.linkage.private.comparing import (
    BlockSpan,
    blocks_of,
    compared,
    slots_of,
    spans_of,
    tasks_between,
)
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.records import (
    audited,
    checked,
    frequencies_of,
    repeated_patterns,
    sizes_of,
    united,
)
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.vectors import BitOrder, Numbers
from spark_jobs.runner.port import HEAVIEST, Block, Forecast, StageContext

__all__ = ["all_pairs", "comparison_of", "forecast", "linked", "order_in"]

_WORD_BITS: Final = 64
_ENDS: Final = ("left_party", "left", "right_party", "right")


def order_in(frequencies: DataFrame, records: int) -> BitOrder:
    rows = frequencies.collect()
    return BitOrder(
        np.array([row["frequency"] for row in rows], dtype=np.int64).sum(axis=0), records
    )


def comparison_of(spec: PrivateSpec, order: BitOrder) -> BlockComparison:
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
    """Leave each record at most one partner of each other owner: the most similar pair first.

    Greedy, and stable in the sense of Gale and Shapley: no two records that were not linked are
    both more similar to each other than to their partners. Of equally similar pairs the one of
    lower ids comes first, so the result is the same every time. It is not the assignment with the
    greatest sum, which would separate good pairs to make room for mediocre ones.

    Each link depends on all pairs before, so one task processes them in order. Spark sorts them, on
    the disk if they are many; the task holds one batch, and each end that is taken: of every record
    at most one for each other owner, however many pairs there are. That is in the forecast of
    memory.
    """
    sorted_ = links.repartition(1).sortWithinPartitions(*_best_first())
    return sorted_.mapInArrow(first_come, links.schema)


def first_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the links of which no end was taken by an earlier, better link."""
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


_PAIRS_PER_S: Final = 400_000_000
"""Of a core: measured for the kernel on a busy machine (`portolan bench pprl`)."""

_ROWS_PER_S: Final = 50_000
_START_S: Final = 10.0
"""Until the comparing processes have loaded their kernels."""

_BYTES_PER_RECORD: Final = 1_000
BYTES_PER_END: Final = 160
"""Of a record that is linked one to one; `assigned` says why."""


def forecast(spec: PrivateSpec, context: StageContext) -> Forecast:
    whole = _records(spec, context)
    rows = checked(whole, list(spec.owners))
    pairs = _pairs_by_size(spec, sizes_of(whole, len(rows)))
    total, people = sum(block.pairs for block in pairs), sum(rows.values())
    rate = _PAIRS_PER_S * slots_of(context.spark)
    return Forecast(
        rows,
        total,
        tuple(sorted(pairs, key=lambda block: -block.pairs)[:HEAVIEST]),
        people * (_BYTES_PER_RECORD + _bytes_of_ends(spec)),
        _START_S + people / _ROWS_PER_S + total / rate,
    )


def _bytes_of_ends(spec: PrivateSpec) -> int:
    """The memory of a record at the end of links: one partner of each other owner is remembered."""
    return (len(spec.owners) - 1) * BYTES_PER_END if spec.one_to_one else 0


def _records(spec: PrivateSpec, context: StageContext) -> DataFrame:
    return united({name: context.input(name) for name in spec.owners}, spec.bits)


def _pairs_by_size(spec: PrivateSpec, sizes: Sequence[Numbers]) -> list[Block]:
    """Count the pairs that the length filter leaves, by the left record's cardinality."""
    limits = ThresholdTables.of(spec.threshold, len(sizes[0]) - 1, length=spec.filters.length)
    blocks = []
    for left, right in combinations(range(len(sizes)), 2):
        up_to = np.concatenate(([0], np.cumsum(sizes[right])))
        partners = up_to[limits.high + 1] - up_to[limits.low]
        for size in np.flatnonzero(sizes[left]).tolist():
            records = int(sizes[left][size])
            name = f"{list(spec.owners)[left]}, {size} bits set"
            blocks.append(Block(name, records, records * int(partners[size])))
    return blocks


def _order(spec: PrivateSpec, context: StageContext) -> DataFrame:
    return frequencies_of(_records(spec, context))


def _blocks(spec: PrivateSpec, context: StageContext) -> DataFrame:
    whole = _records(spec, context)
    rows = whole.groupBy("party").count().collect()
    counts = {row["party"]: row["count"] for row in rows}
    _audit(spec, context, counts)
    total = sum(counts.values())
    return blocks_of(whole, order_in(context.output("order"), total), total)


def _audit(spec: PrivateSpec, context: StageContext, counts: Mapping[int, int]) -> None:
    repeated = {
        row["party"]: (row["patterns"], row["records"], row["most"])
        for row in repeated_patterns(_records(spec, context)).collect()
    }
    frequency = {row["party"]: row["frequency"] for row in context.output("order").collect()}
    report = {
        name: audited(np.array(frequency[n]), counts[n], repeated.get(n, (0, 0, 1)))
        for n, name in enumerate(spec.owners)
    }
    context.report("audit", report)


def _compare(spec: PrivateSpec, context: StageContext) -> DataFrame:
    blocks = context.output("blocks")
    spans = spans_of(blocks)
    order = order_in(context.output("order"), sum(span.records for span in spans))
    comparison = comparison_of(spec, order)
    tasks = tasks_between(spans, comparison)
    matches, tally = compared(blocks, tasks, comparison, context.progress)
    tally.pairs = all_pairs(spans)  # those of skipped blocks are pairs, too
    for name, count in asdict(tally).items():
        context.count(name, count)
    return context.spark.createDataFrame(matches)


def all_pairs(spans: Sequence[BlockSpan]) -> int:
    parties: dict[int, int] = {}
    for span in spans:
        parties[span.party] = parties.get(span.party, 0) + span.records
    return sum(left * right for left, right in combinations(parties.values(), 2))


def _links(spec: PrivateSpec, context: StageContext) -> DataFrame:
    links = linked(context.output("compare"), list(spec.owners), spec.top_k)
    return assigned(links) if spec.one_to_one else links


STAGES: Final[Mapping[str, Callable[[PrivateSpec, StageContext], DataFrame]]] = {
    "order": _order,
    "blocks": _blocks,
    "compare": _compare,
    "links": _links,
}
