"""Fitting the model of a run: an engine counts patterns, the rest is a few thousand numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.agreement import pattern_levels
from spark_jobs.linkage.open.em import Patterns, estimate
from spark_jobs.linkage.open.model import Model
from spark_jobs.linkage.open.pairs import random_pairs
from spark_jobs.linkage.open.plan import document_frame, load_document, load_plan
from spark_jobs.linkage.open.profile import pairs_of
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.runner.port import StageContext

__all__ = ["SAMPLE", "all_pairs", "decided", "fitted", "keep_model", "load_model", "trained"]

SAMPLE: Final = 10_000
_RANDOM_PAIRS: Final = 1_000_000


def keep_model(
    spec: OpenSpec, context: StageContext, estimated: Callable[[OpenSpec], Model]
) -> pa.Table:
    """Keep and report the model of the specification, or the estimate of an engine."""
    complete = load_plan(spec, context)
    if complete.model is not None:
        model = Model.of_json(complete.model, complete.comparisons)
    else:
        model = estimated(complete)
    context.report("model", model.to_json())
    return document_frame(model.to_json())


def load_model(spec: OpenSpec, context: StageContext) -> Model:
    return Model.of_json(load_document(context, "model"), load_plan(spec, context).comparisons)


def trained(records: DataFrame, pairs: DataFrame, spec: OpenSpec) -> Model:
    counted = (
        pairs.groupBy("rules", "pattern").agg(f.count("*").alias("n")).orderBy("rules", "pattern")
    )
    sampled = records.orderBy(f.xxhash64("row", f.lit(spec.seed)), "row").limit(SAMPLE)
    compared = [name for name in records.columns if name[0] in "cn" and name[1:].isdigit()]
    sample = sampled.select("source", *compared).toArrow().combine_chunks()
    return fitted(spec, counted.toArrow(), sample, all_pairs(records, within=spec.within))


def fitted(spec: OpenSpec, counted: pa.Table, sample: pa.Table, pairs: float) -> Model:
    """Fit the model.

    Args:
        spec: Its rules and comparisons.
        counted: How many pairs, ``n``, the rules find with a ``pattern``, in ascending order.
        sample: An even sample of the prepared records, `SAMPLE` at most.
        pairs: The number of all pairs, blocked or not.
    """
    estimated = estimate(
        _random(sample, spec),
        _blocked(counted, spec),
        [decided(spec, rule) for rule in range(len(spec.blocking))],
        [len(one.level_names) for one in spec.comparisons],
        pairs,
    )
    return Model(spec.comparisons, estimated)


def decided(spec: OpenSpec, rule: int) -> frozenset[int]:
    """The comparisons whose outcome a rule decides."""
    columns = spec.blocking[rule].columns
    return frozenset(k for k, one in enumerate(spec.comparisons) if columns & {*one.columns})


def _blocked(counted: pa.Table, spec: OpenSpec) -> Patterns:
    levels = pattern_levels(spec.comparisons, counted.column("pattern").to_numpy())
    counts = counted.column("n").to_numpy().astype(np.float64)
    return Patterns(levels, counts, counted.column("rules").to_numpy())


def _random(sample: pa.Table, spec: OpenSpec) -> Patterns:
    patterns, counts = random_pairs(sample, spec, _RANDOM_PAIRS)
    levels = pattern_levels(spec.comparisons, patterns)
    return Patterns(levels, counts, np.zeros(len(patterns), np.int64))


def all_pairs(records: DataFrame, *, within: bool) -> float:
    """The number of all pairs, blocked or not; at least one."""
    counts = [row["count"] for row in records.groupBy("source").count().collect()]
    return pairs_of(counts, within=within)
