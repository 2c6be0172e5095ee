"""The forecast of a run, and its stages: each reads inputs and frames of earlier stages."""

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
    compare_blocks,
    slots_of,
    spans_of,
    tasks_between,
)
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.records import (
    audit_report,
    check_records,
    frequencies_of,
    repeated_patterns,
    sizes_of,
    unite,
)
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.vectors import BitOrder, Numbers
from spark_jobs.runner.port import MAX_NAMED_BLOCKS, Block, Forecast, StageContext

__all__ = ["all_pairs", "comparison_of", "forecast", "name_links", "order_in"]

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


def name_links(matches: DataFrame, names: list[str], top_k: int | None) -> DataFrame:
    """Add names of owners and similarities, most similar pairs first; keep the best partners."""
    owner_names = f.array(*[f.lit(name) for name in names])
    # Distinct quotients of integers this small are distinct as doubles.
    links = matches.select(
        owner_names[f.col("left_party")].alias("left_party"),
        "left",
        owner_names[f.col("right_party")].alias("right_party"),
        "right",
        (f.col("overlap") / f.col("union")).alias("similarity"),
    )
    if top_k is not None:
        partners = Window.partitionBy("left_party", "left", "right_party")
        rank = f.row_number().over(partners.orderBy(f.desc("similarity"), "right"))
        links = links.withColumn("rank", rank).where(f.col("rank") <= top_k).drop("rank")
    return links.orderBy(*_best_first())


def _best_first() -> list[Column]:
    return [f.desc("similarity"), *map(f.col, _ENDS)]


def assign_one_to_one(links: DataFrame) -> DataFrame:
    """Assign each record at most one partner of each other owner: the most similar pair first.

    Greedy, and stable in the sense of Gale and Shapley: no two unlinked records are both more
    similar to each other than to their partners. Of equally similar pairs the one with lower ids
    comes first, so the result is deterministic. It is not the assignment with the maximum sum,
    which would separate good pairs in favour of mediocre ones.

    Each link depends on all earlier pairs, so one task processes them in order. Spark sorts them,
    on the disk if they are many; the task holds one batch, and the assigned ends: at most one per
    record and other owner, however many pairs there are. The memory forecast includes them.
    """
    sorted_ = links.repartition(1).sortWithinPartitions(*_best_first())
    return sorted_.mapInArrow(first_come, links.schema)


def first_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the links whose ends have no earlier, better link."""
    assigned_ends: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for batch in batches:
        free = []
        for left_party, left, right_party, right in zip(
            *(batch[n].to_pylist() for n in _ENDS), strict=True
        ):
            lefts, rights = (
                assigned_ends[left_party, right_party],
                assigned_ends[right_party, left_party],
            )
            free.append(left not in lefts and right not in rights)
            if free[-1]:
                lefts.add(left)
                rights.add(right)
        yield batch.filter(pa.array(free, pa.bool_()))


_PAIRS_PER_S: Final = 400_000_000
"""Pairs per second and core: measured for the kernel on a busy machine (`portolan bench pprl`)."""

_ROWS_PER_S: Final = 50_000
_START_S: Final = 10.0
"""Seconds until the comparing processes have loaded their kernels."""

_BYTES_PER_RECORD: Final = 1_000
BYTES_PER_END: Final = 160
"""Bytes of a record that is linked one to one, for each other owner (`assign_one_to_one`)."""


def forecast(spec: PrivateSpec, context: StageContext) -> Forecast:
    records = _records(spec, context)
    rows = check_records(records, list(spec.owners))
    pairs = _pairs_by_size(spec, sizes_of(records, len(rows)))
    total, people = sum(block.pairs for block in pairs), sum(rows.values())
    rate = _PAIRS_PER_S * slots_of(context.spark)
    return Forecast(
        rows,
        total,
        tuple(sorted(pairs, key=lambda block: -block.pairs)[:MAX_NAMED_BLOCKS]),
        people * (_BYTES_PER_RECORD + _bytes_per_linked_record(spec)),
        _START_S + people / _ROWS_PER_S + total / rate,
    )


def _bytes_per_linked_record(spec: PrivateSpec) -> int:
    """Return the memory of a record's assigned ends: one partner of each other owner."""
    return (len(spec.owners) - 1) * BYTES_PER_END if spec.one_to_one else 0


def _records(spec: PrivateSpec, context: StageContext) -> DataFrame:
    return unite({name: context.input(name) for name in spec.owners}, spec.bits)


def _pairs_by_size(spec: PrivateSpec, sizes: Sequence[Numbers]) -> list[Block]:
    """Count the pairs that pass the length filter, by the left record's cardinality."""
    limits = ThresholdTables.of(spec.threshold, len(sizes[0]) - 1, length=spec.filters.length)
    blocks = []
    for left, right in combinations(range(len(sizes)), 2):
        cumulative = np.concatenate(([0], np.cumsum(sizes[right])))
        partners = cumulative[limits.high + 1] - cumulative[limits.low]
        for size in np.flatnonzero(sizes[left]).tolist():
            records = int(sizes[left][size])
            name = f"{list(spec.owners)[left]}, {size} bits set"
            blocks.append(Block(name, records, records * int(partners[size])))
    return blocks


def _order(spec: PrivateSpec, context: StageContext) -> DataFrame:
    return frequencies_of(_records(spec, context))


def _blocks(spec: PrivateSpec, context: StageContext) -> DataFrame:
    records = _records(spec, context)
    rows = records.groupBy("party").count().collect()
    counts = {row["party"]: row["count"] for row in rows}
    _audit(spec, context, counts)
    total = sum(counts.values())
    return blocks_of(records, order_in(context.output("order"), total), total)


def _audit(spec: PrivateSpec, context: StageContext, counts: Mapping[int, int]) -> None:
    repeated = {
        row["party"]: (row["patterns"], row["records"], row["most"])
        for row in repeated_patterns(_records(spec, context)).collect()
    }
    frequency = {row["party"]: row["frequency"] for row in context.output("order").collect()}
    report = {
        name: audit_report(np.array(frequency[n]), counts[n], repeated.get(n, (0, 0, 1)))
        for n, name in enumerate(spec.owners)
    }
    context.report("audit", report)


def _compare(spec: PrivateSpec, context: StageContext) -> DataFrame:
    blocks = context.output("blocks")
    spans = spans_of(blocks)
    order = order_in(context.output("order"), sum(span.records for span in spans))
    comparison = comparison_of(spec, order)
    tasks = tasks_between(spans, comparison)
    matches, tally = compare_blocks(blocks, tasks, comparison, context.progress)
    tally.pairs = all_pairs(spans)  # including pairs of skipped blocks
    for name, count in asdict(tally).items():
        context.count(name, count)
    return context.spark.createDataFrame(matches)


def all_pairs(spans: Sequence[BlockSpan]) -> int:
    parties: dict[int, int] = {}
    for span in spans:
        parties[span.party] = parties.get(span.party, 0) + span.records
    return sum(left * right for left, right in combinations(parties.values(), 2))


def _links(spec: PrivateSpec, context: StageContext) -> DataFrame:
    links = name_links(context.output("compare"), list(spec.owners), spec.top_k)
    return assign_one_to_one(links) if spec.one_to_one else links


STAGES: Final[Mapping[str, Callable[[PrivateSpec, StageContext], DataFrame]]] = {
    "order": _order,
    "blocks": _blocks,
    "compare": _compare,
    "links": _links,
}
