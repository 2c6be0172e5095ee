"""``linkage.private``: a kind of job that finds the pairs of encodings that are alike.

    {"kind": "linkage.private",
     "spec": {"left": {"file": "a.csv"}, "right": {"file": "b.csv"}, "threshold": 0.8}}

gives rows ``left_party``, ``left``, ``right_party``, ``right`` and ``similarity``, the most similar
first: exactly the pairs that brute force finds, whichever filters are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Final

from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.runner.port import Block, ColumnType, Forecast, Input, Stage, StageContext

if TYPE_CHECKING:  # specifications are read where there is no Spark
    from pyspark.sql import DataFrame

__all__ = ["PrivateLinkage"]

_PAIRS_PER_S: Final = 400_000_000
"""Of a core: what the kernel did on a busy machine (`portolan bench pprl` measures it)."""

_ROWS_PER_S: Final = 50_000
_START_S: Final = 10.0
"""Until the processes that compare have loaded their kernels."""

_BYTES_PER_RECORD: Final = 1_000
_BYTES_PER_END: Final = 160
"""Of a record that is linked one to one; `assignment` tells why."""

_HEAVIEST: Final = 10


class PrivateLinkage:
    """Links encoded records of several owners."""

    name = "linkage.private"
    summary = "Finds the encoded records of different owners that are of the same person."
    specification = PrivateSpec
    example: ClassVar = {
        "left": {"class": "ours"},
        "right": {"class": "theirs"},
        "threshold": 0.8,
    }

    def inputs(self, spec: PrivateSpec) -> tuple[Input, ...]:
        """Return the owners' records."""
        return tuple(Input(name, source, (spec.bits,)) for name, source in spec.owners.items())

    def columns(self, spec: PrivateSpec) -> Mapping[str, ColumnType]:
        """Return the columns of links; they are the same for all specifications."""
        del spec
        ends: tuple[str, ...] = ("left_party", "left", "right_party", "right")
        return {**dict.fromkeys(ends, "string"), "similarity": "number"}

    def forecast(self, spec: PrivateSpec, context: StageContext) -> Forecast:
        """Count records by cardinality, and from that the pairs; raises `InputUnfit`."""
        from spark_jobs.linkage.private import records  # noqa: PLC0415 - needs Spark
        from spark_jobs.slots import slots_of  # noqa: PLC0415 - as above

        whole = _records(spec, context)
        rows = records.checked(whole, list(spec.owners))
        pairs = _pairs_by_size(spec, records.sizes_of(whole, len(rows)))
        total, people = sum(block.pairs for block in pairs), sum(rows.values())
        rate = _PAIRS_PER_S * slots_of(context.spark)
        return Forecast(
            rows,
            total,
            tuple(sorted(pairs, key=lambda block: -block.pairs)[:_HEAVIEST]),
            people * (_BYTES_PER_RECORD + _bytes_of_ends(spec)),
            _START_S + people / _ROWS_PER_S + total / rate,
        )

    def stages(self, spec: PrivateSpec) -> tuple[Stage, ...]:
        """Find the common order, cut blocks, compare them, and choose links."""
        return (
            Stage("order", lambda context: _order(spec, context)),
            Stage("blocks", lambda context: _blocks(spec, context)),
            Stage("compare", lambda context: _compare(spec, context)),
            Stage("links", lambda context: _links(spec, context)),
        )


def _bytes_of_ends(spec: PrivateSpec) -> int:
    """What the record at the end of links takes: one partner of each other owner is remembered."""
    return (len(spec.owners) - 1) * _BYTES_PER_END if spec.one_to_one else 0


def _records(spec: PrivateSpec, context: StageContext) -> DataFrame:
    from spark_jobs.linkage.private.records import united  # noqa: PLC0415 - needs Spark

    return united({name: context.input(name) for name in spec.owners}, spec.bits)


def _pairs_by_size(spec: PrivateSpec, sizes: list[Any]) -> list[Block]:
    """Count the pairs that the length filter leaves, by the left record's cardinality."""
    import numpy as np  # noqa: PLC0415 - beside what needs Spark

    from spark_jobs.linkage.private.limits import ThresholdTables  # noqa: PLC0415 - compiles with numba

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
    from spark_jobs.linkage.private import records  # noqa: PLC0415 - needs Spark

    whole = _records(spec, context)
    records.checked(whole, list(spec.owners))
    return records.frequencies_of(whole)


def _blocks(spec: PrivateSpec, context: StageContext) -> DataFrame:
    from spark_jobs.linkage.private.comparing import blocks_of  # noqa: PLC0415 - needs Spark
    from spark_jobs.linkage.private.links import order_in  # noqa: PLC0415 - needs Spark

    whole = _records(spec, context)
    rows = whole.groupBy("party").count().collect()
    counts = {row["party"]: row["count"] for row in rows}
    _audit(spec, context, counts)
    total = sum(counts.values())
    return blocks_of(whole, order_in(context.output("order"), total), total)


def _audit(spec: PrivateSpec, context: StageContext, counts: Mapping[int, int]) -> None:
    import numpy as np  # noqa: PLC0415 - beside what needs Spark

    from spark_jobs.linkage.private.audit import audited  # noqa: PLC0415 - as above
    from spark_jobs.linkage.private.records import repeated_patterns  # noqa: PLC0415 - needs Spark

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
    from spark_jobs.linkage.private import comparing  # noqa: PLC0415 - needs Spark
    from spark_jobs.linkage.private.links import comparison_of, order_in  # noqa: PLC0415 - as above

    blocks = context.output("blocks")
    spans = comparing.spans_of(blocks)
    order = order_in(context.output("order"), sum(span.records for span in spans))
    comparison = comparison_of(spec, order)
    tasks = comparing.tasks_between(spans, comparison)
    matches, tally = comparing.compared(blocks, tasks, comparison, context.progress)
    tally.pairs = _all_pairs(spans)  # those of skipped blocks are pairs, too
    for name, count in asdict(tally).items():
        context.count(name, count)
    return context.spark.createDataFrame(matches)


def _all_pairs(spans: list[Any]) -> int:
    parties: dict[int, int] = {}
    for span in spans:
        parties[span.party] = parties.get(span.party, 0) + span.records
    return sum(left * right for left, right in combinations(parties.values(), 2))


def _links(spec: PrivateSpec, context: StageContext) -> DataFrame:
    from spark_jobs.linkage.private.assignment import assigned  # noqa: PLC0415 - needs Spark
    from spark_jobs.linkage.private.links import linked  # noqa: PLC0415 - as above

    links = linked(context.output("compare"), list(spec.owners), spec.top_k)
    return assigned(links) if spec.one_to_one else links
