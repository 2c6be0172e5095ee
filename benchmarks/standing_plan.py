"""Planning standing queries together: the savings of sharing, and the time of planning.

Random queries over the ten relations of the CLASH paper, which all have the same rate and join to
as many results; shared plans against the best plan of each query alone, with replicas of stores on
both sides or on neither. Then more relations and longer queries, with the gap that the solver
reports at its limit of ten seconds (quick: two).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from statistics import mean
from typing import Final

from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.standing_queries import PAPERS_SCHEMA, drawn_workload, larger_schema
from mediator.base.errors import Invalid
from mediator.standing.model import Workload
from mediator.standing.planning import Plan, PlanOptions, make_plans

__all__ = ["run"]

_QUERIES: Final = 100
_SIZE: Final = 3
_BAR_SOLUTION_S: Final = 1.0
_GROWTH: Final = ((100, 100, 3), (100, 10, 4), (100, 10, 5), (100, 30, 5))
"""Relations, queries, and relations of each query."""

_QUICK_GROWTH: Final = _GROWTH[:2]


async def run(options: Options) -> Measured:
    return Measured(await asyncio.to_thread(lambda: list(_results(options))))


def _results(options: Options) -> Iterator[Result]:
    draws = 3 if options.quick else 12
    workloads = [
        drawn_workload(PAPERS_SCHEMA, _QUERIES, _SIZE, Random(options.seed + number))
        for number in range(draws)
    ]
    for replicas in (True, False):
        yield from _compare(options, workloads, replicas=replicas)
    for relations, queries, size in _QUICK_GROWTH if options.quick else _GROWTH:
        schema = larger_schema(relations)
        workload = drawn_workload(schema, queries, size, Random(options.seed))
        name = f"{queries} queries of {size} over {relations} relations"
        yield from _growth(options, workload, name)


def _compare(options: Options, workloads: list[Workload], *, replicas: bool) -> Iterator[Result]:
    name = "with replicas" if replicas else "without replicas"
    planned = PlanOptions(materialise=False, replicas=replicas)
    shared = [_shared(workload, planned) for workload in workloads]
    alone = [_cost(make_plans(workload, "individual", planned)) for workload in workloads]
    greedy = [_cost(make_plans(workload, "greedy", planned)) for workload in workloads]
    cost, baseline = mean(plan.cost for plan in shared), mean(alone)
    options.note(f"{name}: {cost:,.0f} tuples/s against {baseline:,.0f} tuples/s")
    yield Result(f"probe cost, {name}", "tuples/s", cost, baseline, small_is_good=True)
    yield Result(
        f"greedy probe cost, {name}", "tuples/s", mean(greedy), baseline, small_is_good=True
    )
    yield Result(f"variables, {name}", "1", mean(plan.variables for plan in shared))
    solved_s = max(plan.solved_s for plan in shared)
    yield Result(
        f"longest solution, {name}", "s", solved_s, bar=_BAR_SOLUTION_S, small_is_good=True
    )


def _growth(options: Options, workload: Workload, name: str) -> Iterator[Result]:
    planned = PlanOptions(materialise=False, limit_s=2.0 if options.quick else 10.0)
    try:
        plan = _shared(workload, planned)
    except Invalid as error:
        options.note(f"{name}: {error}")
        return
    options.note(f"{name}: {plan.variables:,} variables, {plan.solved_s:.2f} s, {plan.gap:.2%}")
    yield Result(f"variables, {name}", "1", plan.variables)
    yield Result(f"solution, {name}", "s", plan.solved_s, small_is_good=True)
    yield Result(f"gap, {name}", "1", plan.gap, small_is_good=True)


def _shared(workload: Workload, options: PlanOptions) -> Plan:
    (plan,) = make_plans(workload, "shared", options)
    return plan


def _cost(plans: list[Plan]) -> float:
    return sum(plan.cost for plan in plans)
