"""The forecast of a run, and its stages: each follows from inputs and what earlier ones kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Final

import numpy as np
from pyspark.sql import DataFrame

from spark_jobs.linkage.private.comparing import (
    BlockSpan,
    blocks_of,
    compared,
    slots_of,
    spans_of,
    tasks_between,
)
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.links import assigned, comparison_of, linked, order_in
from spark_jobs.linkage.private.records import (
    audited,
    checked,
    frequencies_of,
    repeated_patterns,
    sizes_of,
    united,
)
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.vectors import Numbers
from spark_jobs.runner.port import Block, Forecast, StageContext

__all__ = ["BYTES_PER_END", "STAGES", "forecast"]

_PAIRS_PER_S: Final = 400_000_000
"""Of a core: what the kernel did on a busy machine (`portolan bench pprl` measures it)."""

_ROWS_PER_S: Final = 50_000
_START_S: Final = 10.0
"""Until the processes that compare have loaded their kernels."""

_BYTES_PER_RECORD: Final = 1_000
BYTES_PER_END: Final = 160
"""Of a record that is linked one to one; `links.assigned` says why."""

_HEAVIEST: Final = 10


def forecast(spec: PrivateSpec, context: StageContext) -> Forecast:
    """Count records by cardinality, and from that the pairs; raises `InputUnfit`."""
    whole = _records(spec, context)
    rows = checked(whole, list(spec.owners))
    pairs = _pairs_by_size(spec, sizes_of(whole, len(rows)))
    total, people = sum(block.pairs for block in pairs), sum(rows.values())
    rate = _PAIRS_PER_S * slots_of(context.spark)
    return Forecast(
        rows,
        total,
        tuple(sorted(pairs, key=lambda block: -block.pairs)[:_HEAVIEST]),
        people * (_BYTES_PER_RECORD + _bytes_of_ends(spec)),
        _START_S + people / _ROWS_PER_S + total / rate,
    )


def _bytes_of_ends(spec: PrivateSpec) -> int:
    """What the record at the end of links takes: one partner of each other owner is remembered."""
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
    whole = _records(spec, context)
    checked(whole, list(spec.owners))
    return frequencies_of(whole)


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
    tally.pairs = _all_pairs(spans)  # those of skipped blocks are pairs, too
    for name, count in asdict(tally).items():
        context.count(name, count)
    return context.spark.createDataFrame(matches)


def _all_pairs(spans: Sequence[BlockSpan]) -> int:
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
