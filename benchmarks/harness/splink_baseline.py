"""Splink as the competitor: the same blocks and comparisons, on DuckDB or on Spark."""

from __future__ import annotations

import logging
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

from splink import Linker
from splink.blocking_rule_library import CustomRule

from spark_jobs.linkage.open.in_process.settings import ROW, settings
from spark_jobs.linkage.open.in_process.training import fit_m, fit_u
from spark_jobs.linkage.open.spec import OpenSpec

__all__ = ["SplinkRun", "run_splink"]


class SplinkRun(NamedTuple):
    """The seconds that Splink took, and its cluster of each row."""

    seconds: float
    clusters: dict[int, Any]


def run_splink(table: Any, spec: OpenSpec, database: Any) -> SplinkRun:
    """Train, predict and cluster, as its users do.

    Args:
        table: The result of `in_process.comparing.comparison_columns`, in the database's form.
        spec: Rules and comparisons of one table; the first rule is almost certain.
        database: Splink's DuckDBAPI or SparkAPI.
    """
    logging.getLogger("splink").setLevel(logging.ERROR)
    splink_settings = replace(settings(spec), retain_intermediate_calculation_columns=False)
    started = perf_counter()
    linker = Linker(table, splink_settings, database, set_up_basic_logging=False)
    certain = CustomRule("l.k0 = r.k0")
    linker.training.estimate_probability_two_random_records_match([certain], recall=0.8)
    fit_u(linker, spec.seed)
    for rule in range(2):
        fit_m(linker, spec, rule)
    predicted = linker.inference.predict(threshold_match_probability=spec.threshold)
    clusters = linker.clustering.cluster_pairwise_predictions_at_threshold(
        predicted, threshold_match_probability=spec.threshold
    )
    clusters.as_record_dict(limit=1)
    seconds = perf_counter() - started
    rows = clusters.as_record_dict()
    return SplinkRun(seconds, {row[ROW]: row["cluster_id"] for row in rows})
