"""Fits the model of a run from the counts of patterns, which an engine computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.agreement import pattern_levels
from spark_jobs.linkage.open.chance import SAMPLE, random_patterns
from spark_jobs.linkage.open.em import Patterns, estimate
from spark_jobs.linkage.open.model import Model
from spark_jobs.linkage.open.plan import document_frame, load_document, load_plan
from spark_jobs.linkage.open.profile import pairs_of
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.whole.matching import WholeRecordModel
from spark_jobs.runner.port import StageContext

__all__ = [
    "decided_comparisons",
    "fit_model",
    "keep_model",
    "load_model",
    "source_sizes",
    "train_model",
]

_RANDOM_PAIRS: Final = 1_000_000


def keep_model(
    spec: OpenSpec, context: StageContext, estimate_model: Callable[[OpenSpec], Model]
) -> pa.Table:
    """Store and report the specification's model, or else the engine's estimate."""
    complete = load_plan(spec, context)
    model: Model | WholeRecordModel
    if complete.similarity is not None:
        model = WholeRecordModel(complete.similarity.columns)
    elif complete.model is not None:
        model = Model.of_json(complete.model, complete.comparisons)
    else:
        model = estimate_model(complete)
    context.report("model", model.to_json())
    return document_frame(model.to_json())


def load_model(spec: OpenSpec, context: StageContext) -> Model | WholeRecordModel:
    complete = load_plan(spec, context)
    if complete.similarity is not None:
        return WholeRecordModel(complete.similarity.columns)
    return Model.of_json(load_document(context, "model"), complete.comparisons)


def train_model(records: DataFrame, pairs: DataFrame, spec: OpenSpec) -> Model:
    counts = (
        pairs.groupBy("rules", "pattern").agg(f.count("*").alias("n")).orderBy("rules", "pattern")
    )
    return fit_model(spec, counts.toArrow(), _sample(records, spec), source_sizes(records, spec))


def _sample(records: DataFrame, spec: OpenSpec) -> pa.Table:
    columns = [name for name in records.columns if name[0] in "cn" and name[1:].isdigit()]
    sources = [records.where(f.col("source") == at) for at in range(len(spec.inputs))]
    groups = [records] if spec.within else sources
    # Ordered by a hash: an even and repeatable sample.
    samples = [
        group.orderBy(f.xxhash64("row", f.lit(spec.seed)), "row").limit(SAMPLE // len(groups))
        for group in groups
    ]
    return reduce(DataFrame.union, samples).select("source", *columns).toArrow().combine_chunks()


def fit_model(spec: OpenSpec, counts: pa.Table, sample: pa.Table, sizes: Sequence[int]) -> Model:
    """Fit the model.

    Args:
        spec: Its rules and comparisons.
        counts: The number of pairs, ``n``, by ``rules`` and ``pattern``, in ascending order.
        sample: Even samples of the prepared records, as for `random_patterns`.
        sizes: The number of records of each table.
    """
    estimates = estimate(
        _random(sample, sizes, spec),
        _blocked(counts, spec),
        [decided_comparisons(spec, rule) for rule in range(len(spec.blocking))],
        [len(comparison.level_names) for comparison in spec.comparisons],
        pairs_of(sizes, within=spec.within),
    )
    return Model(spec.comparisons, estimates)


def decided_comparisons(spec: OpenSpec, rule: int) -> frozenset[int]:
    """Return the comparisons whose outcome a rule decides."""
    columns = spec.blocking[rule].columns
    return frozenset(
        k for k, comparison in enumerate(spec.comparisons) if columns & {*comparison.columns}
    )


def _blocked(table: pa.Table, spec: OpenSpec) -> Patterns:
    levels = pattern_levels(spec.comparisons, table.column("pattern").to_numpy())
    counts = table.column("n").to_numpy().astype(np.float64)
    return Patterns(levels, counts, table.column("rules").to_numpy())


def _random(sample: pa.Table, sizes: Sequence[int], spec: OpenSpec) -> Patterns:
    patterns, counts = random_patterns(sample, sizes, spec, _RANDOM_PAIRS)
    levels = pattern_levels(spec.comparisons, patterns)
    return Patterns(levels, counts, np.zeros(len(patterns), np.int64))


def source_sizes(records: DataFrame, spec: OpenSpec) -> list[int]:
    """Return the number of records of each table."""
    counts = {row["source"]: row["count"] for row in records.groupBy("source").count().collect()}
    return [counts.get(at, 0) for at in range(len(spec.inputs))]
