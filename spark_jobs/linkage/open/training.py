"""Fitting the model of a run: patterns are counted by Spark, the rest is a few thousand numbers."""

from __future__ import annotations

from typing import Final

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.agreement import pattern_levels
from spark_jobs.linkage.open.em import Patterns, estimate
from spark_jobs.linkage.open.model import Model
from spark_jobs.linkage.open.pairs import random_pairs
from spark_jobs.linkage.open.profile import pairs_of
from spark_jobs.linkage.open.spec import OpenSpec

__all__ = ["all_pairs", "decided", "trained"]

_SAMPLE: Final = 10_000
_RANDOM_PAIRS: Final = 1_000_000


def trained(records: DataFrame, pairs: DataFrame, spec: OpenSpec) -> Model:
    estimated = estimate(
        _random(records, spec),
        _blocked(pairs, spec),
        [decided(spec, rule) for rule in range(len(spec.blocking))],
        [len(one.level_names) for one in spec.comparisons],
        all_pairs(records, within=spec.within),
    )
    return Model(spec.comparisons, estimated)


def decided(spec: OpenSpec, rule: int) -> frozenset[int]:
    """The comparisons whose outcome a rule decides."""
    columns = spec.blocking[rule].columns
    return frozenset(k for k, one in enumerate(spec.comparisons) if columns & {*one.columns})


def _blocked(pairs: DataFrame, spec: OpenSpec) -> Patterns:
    counted = (
        pairs.groupBy("rules", "pattern").agg(f.count("*").alias("n")).orderBy("rules", "pattern")
    )
    table = counted.toArrow()
    levels = pattern_levels(spec.comparisons, table.column("pattern").to_numpy())
    return Patterns(
        levels, table.column("n").to_numpy().astype(np.float64), table.column("rules").to_numpy()
    )


def _random(records: DataFrame, spec: OpenSpec) -> Patterns:
    sampled = records.orderBy(f.xxhash64("row", f.lit(spec.seed)), "row").limit(_SAMPLE)
    compared = [name for name in records.columns if name[0] in "cn" and name[1:].isdigit()]
    sample = sampled.select("source", *compared).toArrow().combine_chunks()
    patterns, counts = random_pairs(sample, spec, _RANDOM_PAIRS)
    levels = pattern_levels(spec.comparisons, patterns)
    return Patterns(levels, counts, np.zeros(len(patterns), np.int64))


def all_pairs(records: DataFrame, *, within: bool) -> float:
    """The number of all pairs, blocked or not; at least one."""
    counts = [row["count"] for row in records.groupBy("source").count().collect()]
    return pairs_of(counts, within=within)
