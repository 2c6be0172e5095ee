"""Fits the model by Splink: u from random pairs, m by EM over the pairs of each rule.

Splink estimates the share of matches among all pairs from nearly certain rules and a user's guess
of their recall. A specification has neither, so the share follows from m, u and all compared pairs,
as on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import duckdb
import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from splink import Linker

from spark_jobs.linkage.open.agreement import pattern_levels
from spark_jobs.linkage.open.blocks import loads
from spark_jobs.linkage.open.em import Estimate, Patterns, guess, share_of
from spark_jobs.linkage.open.in_process.comparing import load_records
from spark_jobs.linkage.open.in_process.duck import in_memory_database, run_steps
from spark_jobs.linkage.open.in_process.settings import training_rule
from spark_jobs.linkage.open.model import Model
from spark_jobs.linkage.open.profile import pairs_of
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Floats
from spark_jobs.linkage.open.training import decided_comparisons, source_sizes
from spark_jobs.runner.port import StageContext

__all__ = ["fit_m", "fit_u", "train_model"]

_RANDOM_PAIRS: Final = 1_000_000
_MIN_PROBABILITY: Final = 1e-6
_DIGITS: Final = 9  # sums over threads differ beyond these


def train_model(spec: OpenSpec, context: StageContext) -> Model:
    records = context.output("records")
    all_pairs = pairs_of(source_sizes(records, spec), within=spec.within)
    rules = [load.rule for load in loads(records, spec)]
    parameters = _train(spec, context, rules) if rules else {}
    min_probability = max(_MIN_PROBABILITY, 0.5 / min(all_pairs, _RANDOM_PAIRS))
    m = _read_parameters(spec, parameters, "m_probability", min_probability)
    u = _read_parameters(spec, parameters, "u_probability", min_probability)
    share = share_of(_patterns(spec, context.output("compare")), m, u, all_pairs)
    return Model(spec.comparisons, Estimate(m, u, _round(share)))


def fit_u(linker: Linker, seed: int) -> None:
    linker.training.estimate_u_using_random_sampling(max_pairs=_RANDOM_PAIRS, seed=seed)


def fit_m(linker: Linker, spec: OpenSpec, rule: int) -> None:
    linker.training.estimate_parameters_using_expectation_maximisation(
        training_rule(spec, rule, sorted(decided_comparisons(spec, rule))),
        estimate_without_term_frequencies=True,  # over patterns, which are few
    )


def _train(spec: OpenSpec, context: StageContext, rules: Sequence[int]) -> Mapping[str, Any]:
    """Train by rules with pairs; return Splink's levels of each comparison, by its name."""
    records = load_records(spec, context)
    training_rules = [
        rule for rule in rules if len(decided_comparisons(spec, rule)) < len(spec.comparisons)
    ]
    with in_memory_database() as duck:
        (linker,) = run_steps(context, duck, [records.linker])
        steps = [partial(_train_m, linker, spec, rule) for rule in training_rules]
        run_steps(context, duck, [partial(_train_u, linker, spec.seed), *steps])
        model = linker.misc.save_model_to_json(None)
    return {
        comparison["output_column_name"]: comparison["comparison_levels"]
        for comparison in model["comparisons"]
    }


def _train_u(linker: Linker, seed: int, duck: duckdb.DuckDBPyConnection) -> None:
    # With several threads a seed does not determine the sample.
    duck.execute("SET threads = 1")
    fit_u(linker, seed)
    duck.execute("RESET threads")


def _train_m(linker: Linker, spec: OpenSpec, rule: int, _: duckdb.DuckDBPyConnection) -> None:
    fit_m(linker, spec, rule)


def _read_parameters(
    spec: OpenSpec, parameters: Mapping[str, Any], parameter: str, min_probability: float
) -> tuple[Floats, ...]:
    return tuple(
        _probabilities(
            parameters.get(f"c{k}", ()), parameter, min_probability, len(comparison.level_names)
        )
        for k, comparison in enumerate(spec.comparisons)
    )


def _probabilities(
    levels: Sequence[Mapping[str, Any]], parameter: str, min_probability: float, size: int
) -> Floats:
    """Return the probabilities of one comparison, null first; a guess if it was not trained."""
    estimates = [level.get(parameter) or 0.0 for level in levels[1:]]
    if not any(estimates):
        return guess(size)
    return np.array(
        [0.0, *(_round(max(probability, min_probability)) for probability in estimates)]
    )


def _patterns(spec: OpenSpec, pairs: DataFrame) -> Patterns:
    table = pairs.groupBy("pattern").agg(f.count("*").alias("n")).orderBy("pattern").toArrow()
    codes = table.column("pattern").to_numpy()
    counts = table.column("n").to_numpy().astype(np.float64)
    return Patterns(pattern_levels(spec.comparisons, codes), counts, np.zeros_like(codes))


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
