"""Continuous queries on Spark, in PostgreSQL, or on both: the gain of placing each operator.

Queries over smart plugs at several rates, each executed by the chosen plan, by Spark alone, and
with all but the windows in the database. A figure is the throughput of a plan in tuples/s: the
tuples of a batch over its time. Spark's own operators are incremental. Costs are calibrated in the
same run, unless it is quick. Then the plans examined for joins of two, five and eight averages,
undivided and divided into subplans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Final

from pyspark.sql import SparkSession

from app.commands.demo.failed import Failed
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import embedded_fleet
from benchmarks.harness.smart_plugs import QUERIES, averages, plug_loads, query_document
from benchmarks.harness.spark_session import opened_session
from mediator.continuous.costs import Constants
from mediator.continuous.order import Capacity, Engine
from mediator.continuous.parser import parse_query
from mediator.continuous.phase_two import SUBPLAN
from mediator.continuous.planning import (
    Plan,
    PlanOptions,
    everything_on,
    make_plan,
    reference_constants,
)
from spark_jobs.continuous.calibration import fit, measure
from spark_jobs.continuous.running import run_plan

__all__ = ["run"]

_CONF: Final = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}
_RATES: Final = (1_000.0, 10_000.0)
_WARM_UP_BATCHES: Final = 10
"""Batches until the longest window is full."""

_MEASURED_BATCHES: Final = 8
_TRIGGER_S: Final = 1.0
_EXPECTED_PLANS: Final = {2: 11, 5: 312, 8: 8411}
"""Plans of the paper's table 2, by the number of averages that are joined."""

_TOLERANCE: Final = 1.1
"""A plan is as good as the best one if it takes no more than a tenth longer."""


async def run(options: Options) -> Measured:
    results = list(_planning_results(options))
    async with embedded_fleet("full") as (fleet, scratch):
        url = fleet.endpoints["postgresql"].url
        results += await asyncio.to_thread(lambda: list(_execution_results(options, url, scratch)))
    return Measured(results)


def _planning_results(options: Options) -> Iterator[Result]:
    for ways, expected in _EXPECTED_PLANS.items():
        query = parse_query(averages(ways, 1_000.0))
        for max_subplan in (None, SUBPLAN):
            planned = PlanOptions(reference_constants(), reorder=False, max_subplan=max_subplan)
            began = perf_counter()
            plan = make_plan(query, planned)
            planning_ms = 1e3 * (perf_counter() - began)
            examined = plan.physical.examined
            if max_subplan is None and examined != expected:
                raise Failed(f"{examined} plans instead of {expected}")
            name = f"{ways}-way join, {'divided' if max_subplan else 'undivided'}"
            options.log(f"{name}: {examined:,} plans, {planning_ms:.1f} ms")
            yield Result(f"plans examined, {name}", "1", examined)
            yield Result(f"planning, {name}", "ms", planning_ms, small_is_good=True)


def _execution_results(options: Options, url: str, scratch: Path) -> Iterator[Result]:
    with opened_session(_CONF) as session:
        constants = reference_constants()
        if not options.quick:
            samples = measure(session, url, scratch / "calibration", options.log, quick=True)
            constants, error = fit(samples)
            yield Result("calibration, median error", "1", error, small_is_good=True)
        names = list(QUERIES)[:1] if options.quick else list(QUERIES)
        good = 0
        cases = [(name, rate) for name in names for rate in _RATES[: 1 if options.quick else None]]
        for number, (name, rate) in enumerate(cases):
            directory = scratch / f"case-{number}"
            measured = _Case(session, url, directory, name, rate, options).measure(constants)
            chosen = measured["chosen"]
            for engine in Engine:
                against = f"{name} at {rate:,.0f}/s, chosen against all on {engine.value}"
                yield Result(against, "tuples/s", chosen, baseline=measured[engine.value])
            good += chosen * _TOLERANCE >= max(measured.values())
        yield Result(
            "chosen plans that are the best measured one, or nearly", "1", good / len(cases)
        )


class _Case:
    """A query at a rate, executed by three plans."""

    def __init__(
        self,
        session: SparkSession,
        url: str,
        directory: Path,
        name: str,
        rate: float,
        options: Options,
    ) -> None:
        self._session, self._url, self._directory = session, url, directory
        self._name, self._rate, self._options = name, rate, options
        self._query = parse_query(query_document(name, rate))

    def measure(self, constants: Constants) -> dict[str, float]:
        """Return the throughput of each plan (tuples/s)."""
        planned = PlanOptions(constants, _TRIGGER_S, Capacity(machine=1))
        chosen = make_plan(self._query, planned)
        plans = {"chosen": chosen} | {
            engine.value: everything_on(engine, self._query, planned) for engine in Engine
        }
        measured: dict[str, float] = {}
        for plan_name, plan in plans.items():
            same = [n for n in measured if plans[n].physical.engines == plan.physical.engines]
            # Equal plans are executed once: their figures would differ by noise alone.
            measured[plan_name] = measured[same[0]] if same else self._throughput(plan_name, plan)
            predicted_s = plan.physical.cost.total * _TRIGGER_S
            where = [n for n, engine in plan.physical.engines.items() if engine is Engine.DATABASE]
            self._options.note(
                f"{self._name} at {self._rate:,.0f}/s, {plan_name}:"
                f" {measured[plan_name]:,.0f} tuples/s, {self._rate / measured[plan_name]:.3f} s"
                f" a batch, {predicted_s:.3f} s predicted; in the database: {', '.join(where)}"
            )
        return measured

    def _throughput(self, name: str, plan: Plan) -> float:
        warm_up = 3 if self._options.quick else _WARM_UP_BATCHES
        batches = warm_up + (4 if self._options.quick else _MEASURED_BATCHES)
        tuples = plug_loads(self._rate, batches + 0.5, Random(self._options.seed))
        directory = self._directory / name
        times = run_plan(self._session, plan, tuples, _TRIGGER_S, directory, self._url)
        seconds = median(batch.seconds for batch in times[warm_up:-1])
        return self._rate * _TRIGGER_S / seconds
