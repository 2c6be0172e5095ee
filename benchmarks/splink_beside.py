"""Splink as the opponent: the same blocks, the same comparisons, on DuckDB or on Spark."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from splink import Linker, SettingsCreator, block_on
from splink import comparison_level_library as levels
from splink.comparison_library import CustomComparison

from spark_jobs.linkage.open.spec import Comparison, Measure, OpenSpec

__all__ = ["seconds", "shown"]

_RANDOM_PAIRS: Final = 1_000_000
_LEVELS: Final = {
    Measure.EXACT: lambda column, _: levels.ExactMatchLevel(column),
    Measure.LEVENSHTEIN: lambda column, limit: levels.LevenshteinLevel(column, int(limit)),
    Measure.JARO_WINKLER: levels.JaroWinklerLevel,
}


def shown(records: DataFrame, spec: OpenSpec) -> DataFrame:
    """Prepared records as Splink wants them: blocking keys and compared texts as columns."""
    keys = [
        f.nullif(f.get("keys", f.lit(rule)), f.lit(0)).alias(f"k{rule}")
        for rule in range(len(spec.blocking))
    ]
    texts = [f"c{k}" for k in range(len(spec.comparisons))]
    return records.select(f.col("row").alias("unique_id"), *keys, *texts)


def seconds(table: Any, spec: OpenSpec, database: Any) -> float:
    """Train, predict and cluster; how long that takes.

    Args:
        table: What `shown` gives, as the database takes it.
        spec: Rules and comparisons; only measures that Splink has.
        database: Splink's DuckDBAPI or SparkAPI.
    """
    logging.getLogger("splink").setLevel(logging.ERROR)
    rules = [block_on(f"k{rule}") for rule in range(len(spec.blocking))]
    settings = SettingsCreator(
        link_type="dedupe_only",
        comparisons=[_comparison(k, one) for k, one in enumerate(spec.comparisons)],
        blocking_rules_to_generate_predictions=[*rules],
    )
    began = perf_counter()
    linker = Linker(table, settings, database)
    linker.training.estimate_probability_two_random_records_match([rules[0]], recall=0.8)
    linker.training.estimate_u_using_random_sampling(max_pairs=_RANDOM_PAIRS, seed=spec.seed)
    for rule in rules[:2]:
        linker.training.estimate_parameters_using_expectation_maximisation(rule)
    predicted = linker.inference.predict(threshold_match_probability=spec.threshold)
    clusters = linker.clustering.cluster_pairwise_predictions_at_threshold(
        predicted, threshold_match_probability=spec.threshold
    )
    clusters.as_record_dict(limit=1)
    return perf_counter() - began


def _comparison(k: int, comparison: Comparison) -> CustomComparison:
    column = f"c{k}"
    listed = [_LEVELS[level.measure](column, level.limit) for level in comparison.levels]
    if comparison.term_frequency:
        listed[0] = listed[0].configure(tf_adjustment_column=column)
    return CustomComparison(
        output_column_name=column,
        comparison_levels=[levels.NullLevel(column), *listed, levels.ElseLevel()],
    )
