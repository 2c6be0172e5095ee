"""The plan of a service's queries, and when another one is worth the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mediator.base.errors import Invalid
from mediator.base.integer_program import SolverMissing
from mediator.standing.model import Join, Statistics, Stream, Workload
from mediator.standing.planning import Mode, Plan, PlanOptions, make_plans
from mediator.standing.probe_orders import step_cost
from mediator.standing.problem import steps_of

__all__ = ["MARGIN", "choose_plan", "is_cheaper", "plans_of", "workload_of"]

_SOLVER_LIMIT_S: Final = 2.0
"""For all plans of a mode together."""

MARGIN: Final = 0.1
"""The share of the cost that another plan has to save: a change of plans costs something, too."""


def workload_of(queries: Mapping[str, Join], statistics: Statistics) -> Workload:
    """Return what is to be planned; stores have one partition, as one process executes all."""
    streams = {name: Stream(frozenset(), rate) for name, rate in statistics.rates.items()}
    return Workload(streams, queries, statistics)


def choose_plan(workload: Workload, mode: Mode, *, materialise: bool) -> Plan:
    """Return one plan of all queries, if need be without intermediate results.

    Raises:
        Invalid: There are too many candidate probe orders, even without intermediate results.
    """
    try:
        [plan] = plans_of(workload, mode, materialise=materialise)
    except Invalid:
        if not materialise:
            raise
        return choose_plan(workload, mode, materialise=False)
    return plan


def plans_of(workload: Workload, mode: Mode, *, materialise: bool) -> list[Plan]:
    """Return plans of a mode; greedy ones where there is no solver.

    Raises:
        Invalid: There are too many candidate probe orders.
    """
    solved = len(workload.queries) if mode == "individual" else 1
    options = PlanOptions(materialise, replicas=False, limit_s=_SOLVER_LIMIT_S / solved)
    try:
        return make_plans(workload, mode, options)
    except SolverMissing:
        parts = (
            [[name] for name in workload.queries] if mode == "individual" else [workload.queries]
        )
        return [
            plan for each in parts for plan in make_plans(workload.only(each), "greedy", options)
        ]


def is_cheaper(plan: Plan, present: Plan) -> bool:
    """Whether a plan saves enough over the present one, by the statistics of the new one."""
    statistics, parallelism = plan.workload.statistics, plan.workload.parallelism
    cost = sum(step_cost(each, statistics, parallelism) for each in steps_of(present.choice))
    return plan.cost < (1 - MARGIN) * cost
