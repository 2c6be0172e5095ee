"""Calibrates the cost model for this machine: executes queries, and fits constants to their times.

A batch takes as long as all of its operators together, because Spark executes them in sequence. So
its time is the sum of counts times constants, and the constants follow by non-negative least
squares of relative errors, so that short batches weigh as much as long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import numpy as np
from pyspark.sql import SparkSession
from scipy.optimize import nnls

from mediator.continuous.costs import Constants, Workload
from mediator.continuous.model import post_order, relational
from mediator.continuous.order import Engine
from mediator.continuous.parser import parse_query
from mediator.continuous.planning import Plan, PlanOptions, as_given, reference_constants
from spark_jobs.continuous.log import Tuple
from spark_jobs.continuous.running import run_plan

__all__ = ["Sample", "fit", "measure"]

_TRIGGER_S: Final = 1.0
_PRIOR: Final = 0.2
"""Weight of the reference constants, to which indistinguishable constants stay close."""

_FIELDS: Final = {"plug": "integer", "load": "number"}


@dataclass(frozen=True, slots=True)
class Sample:
    """An executed plan: the counts of its operators in a batch, and the seconds of a batch."""

    counts: dict[str, float]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Case:
    """A query to execute; `in_database` names its operators in the database."""

    shape: str
    rate: float
    range_s: float
    plugs: int
    in_database: tuple[str, ...] = ()


def measure(
    session: SparkSession, url: str, directory: Path, report: Callable[[str], None], *, quick: bool
) -> list[Sample]:
    """Execute queries that differ in one respect each.

    Raises:
        StoreError: The database refuses or does not answer.
    """
    samples = []
    for number, case in enumerate(_cases(quick=quick)):
        plan = _plan(case)
        batches = 5 if quick else round(2 * case.range_s) + 6
        tuples = _tuples(case, batches)
        times = run_plan(session, plan, tuples, _TRIGGER_S, directory / str(number), url)
        # The first half fills the windows; the last batch has an incomplete trigger.
        seconds = median(time.seconds for time in times[len(times) // 2 : -1])
        placement = ", ".join(case.in_database) or "nothing"
        report(
            f"{case.shape}, {case.rate:g}/s, {placement} in the database: {seconds:.3f} s a batch"
        )
        samples.append(Sample(_counts(plan), seconds))
    return samples


def fit(samples: list[Sample]) -> tuple[Constants, float]:
    """Return constants, and the median relative error of predicted times."""
    names = [field.name for field in fields(Constants)]
    seconds = np.array([sample.seconds for sample in samples])
    counts = np.array([[sample.counts.get(name, 0.0) for name in names] for sample in samples])
    scales = np.maximum(counts.max(axis=0), 1e-12)
    matrix = counts / scales / seconds[:, None]
    reference = reference_constants().to_json()
    prior = np.array([reference[name] for name in names]) * scales
    matrix = np.vstack([matrix, np.diag(_PRIOR / np.maximum(prior, 1e-12))])
    target = np.hstack([np.ones(len(samples)), np.full(len(names), _PRIOR)])
    solution, _ = nnls(matrix, target)
    constants = solution / scales
    errors = np.abs(counts @ constants / seconds - 1)
    values = {name: float(f"{value:.3g}") for name, value in zip(names, constants, strict=True)}
    return Constants(**values), float(np.median(errors))


def _cases(*, quick: bool) -> Iterator[_Case]:
    rates = (200.0, 4_000.0) if quick else (200.0, 2_000.0, 10_000.0)
    ranges = (2.0,) if quick else (2.0, 8.0)
    for rate in rates:
        for range_s in ranges:
            for plugs in (50, 1_000):
                yield _Case("aggregate", rate, range_s, plugs)
                yield _Case("aggregate", rate, range_s, plugs, ("root",))
    for rate in rates[1:]:
        for kind, placed in _SHAPES.items():
            for in_database in placed:
                yield _Case(kind, rate, ranges[-1], 1_000, in_database)


_SHAPES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "select": ((), ("root",), ("chosen", "renamed", "root")),
    "join": ((), ("compared", "root"), ("peaks", "compared", "root"), ("peaks",)),
    "joined aggregates": ((), ("compared", "root"), ("peaks", "means", "compared", "root")),
}


def _plan(case: _Case) -> Plan:
    query = parse_query(_document(case))
    options = PlanOptions(reference_constants(), _TRIGGER_S)
    engines = {
        operator.name: Engine.DATABASE if operator.name in case.in_database else Engine.SPARK
        for operator in relational(query.root)
    }
    return as_given(query, engines, options)


def _document(case: _Case) -> dict[str, Any]:
    window = {"window": "loads", "range_s": case.range_s}
    counted = {"aggregate": {"n": {"count": "*"}}, "by": ["plug"]}
    peaks = {"aggregate": {"peak": {"maximum": "load"}}, "by": ["plug"], "of": "again"}
    operators: dict[str, Any] = {"recent": window}
    match case.shape:
        case "aggregate":
            operators["root"] = {**counted, "of": "recent"}
        case "select":
            operators["chosen"] = {"select": [{"ge": ["load", 0]}], "of": "recent"}
            operators["renamed"] = {"project": {"plug": "plug"}, "of": "chosen"}
            operators["root"] = {**counted, "of": "renamed"}
        case "join":
            operators |= {"again": window, "peaks": peaks}
            operators["compared"] = {"join": ["recent", "peaks"]}
            operators["root"] = {**counted, "of": "compared"}
        case _:
            means = {"aggregate": {"mean": {"average": "load"}}, "by": ["plug"], "of": "recent"}
            operators |= {"means": means, "again": window, "peaks": peaks}
            operators["compared"] = {"join": ["means", "peaks"]}
            operators["root"] = {**counted, "of": "compared"}
    return {
        "streams": {"loads": {"fields": _FIELDS, "rate": case.rate}},
        "slide_s": _TRIGGER_S,
        "distinct": {"plug": case.plugs},
        "operators": operators,
        "root": "root",
    }


def _tuples(case: _Case, batches: int) -> Iterator[Tuple]:
    draw = Random(1)  # noqa: S311 - loads, not secrets
    for number in range(round(case.rate * batches)):
        values = {"plug": draw.randrange(case.plugs), "load": draw.random()}
        yield "loads", (number + 1) / case.rate, values


def _counts(plan: Plan) -> dict[str, float]:
    """Return the counts in a batch, by the constants that they are multiplied with."""
    workload = Workload(plan.query, _TRIGGER_S)
    in_statements = {operator.name for fragment in plan.physical.fragments for operator in fragment}
    on_spark = [
        workload.on_spark(operator)
        for operator in post_order(plan.query.root)
        if operator.name not in in_statements
    ]
    statements = [workload.in_database(fragment) for fragment in plan.physical.fragments]
    total: dict[str, float] = {}
    for counts in (*on_spark, *statements):
        for name, count in counts.items():
            total[name] = total.get(name, 0.0) + count * _TRIGGER_S
    return total
