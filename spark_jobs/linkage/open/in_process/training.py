"""The model, fitted by Splink: u from random pairs, m by EM over the pairs of each rule.

Splink estimates the share of matches among all pairs from rules that are nearly certain and a
person's guess of their recall. A specification has neither, so the share follows from m, u and all
compared pairs, as on Spark.
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
from spark_jobs.linkage.open.training import decided, source_sizes
from spark_jobs.runner.port import StageContext

__all__ = ["fit_m", "fit_u", "trained"]

_RANDOM_PAIRS: Final = 1_000_000
_LEAST: Final = 1e-6
_DIGITS: Final = 9  # sums over threads differ in later ones


def trained(spec: OpenSpec, context: StageContext) -> Model:
    records = context.output("records")
    everything = pairs_of(source_sizes(records, spec), within=spec.within)
    rules = [load.rule for load in loads(records, spec)]
    parameters = _train(spec, context, rules) if rules else {}
    least = max(_LEAST, 0.5 / min(everything, _RANDOM_PAIRS))
    m = _read(spec, parameters, "m_probability", least)
    u = _read(spec, parameters, "u_probability", least)
    share = share_of(_patterns(spec, context.output("compare")), m, u, everything)
    return Model(spec.comparisons, Estimate(m, u, _rounded(share)))


def fit_u(linker: Linker, seed: int) -> None:
    linker.training.estimate_u_using_random_sampling(max_pairs=_RANDOM_PAIRS, seed=seed)


def fit_m(linker: Linker, spec: OpenSpec, rule: int) -> None:
    linker.training.estimate_parameters_using_expectation_maximisation(
        training_rule(spec, rule, sorted(decided(spec, rule))),
        estimate_without_term_frequencies=True,  # over patterns, as there are few of them
    )


def _train(spec: OpenSpec, context: StageContext, rules: Sequence[int]) -> Mapping[str, Any]:
    """Train by rules that have pairs; return Splink's levels of each comparison, by its name."""
    records = load_records(spec, context)
    teaching = [rule for rule in rules if len(decided(spec, rule)) < len(spec.comparisons)]
    with in_memory_database() as duck:
        (linker,) = run_steps(context, duck, [records.linker])
        steps = [partial(_rule, linker, spec, rule) for rule in teaching]
        run_steps(context, duck, [partial(_strangers, linker, spec.seed), *steps])
        model = linker.misc.save_model_to_json(None)
    return {one["output_column_name"]: one["comparison_levels"] for one in model["comparisons"]}


def _strangers(linker: Linker, seed: int, duck: duckdb.DuckDBPyConnection) -> None:
    # Only one thread draws the same sample for a seed.
    duck.execute("SET threads = 1")
    fit_u(linker, seed)
    duck.execute("RESET threads")


def _rule(linker: Linker, spec: OpenSpec, rule: int, _: duckdb.DuckDBPyConnection) -> None:
    fit_m(linker, spec, rule)


def _read(
    spec: OpenSpec, parameters: Mapping[str, Any], which: str, least: float
) -> tuple[Floats, ...]:
    return tuple(
        _probabilities(parameters.get(f"c{k}", ()), which, least, len(one.level_names))
        for k, one in enumerate(spec.comparisons)
    )


def _probabilities(
    levels: Sequence[Mapping[str, Any]], which: str, least: float, size: int
) -> Floats:
    """The probabilities of one comparison, null first; guessed, if nothing was learnt of it."""
    learnt = [level.get(which) or 0.0 for level in levels[1:]]
    if not any(learnt):
        return guess(size)
    return np.array([0.0, *(_rounded(max(one, least)) for one in learnt)])


def _patterns(spec: OpenSpec, pairs: DataFrame) -> Patterns:
    table = pairs.groupBy("pattern").agg(f.count("*").alias("n")).orderBy("pattern").toArrow()
    codes = table.column("pattern").to_numpy()
    counts = table.column("n").to_numpy().astype(np.float64)
    return Patterns(pattern_levels(spec.comparisons, codes), counts, np.zeros_like(codes))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
