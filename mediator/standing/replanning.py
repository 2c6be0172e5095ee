"""Planning of a service's queries, and whether a new plan is worth the change."""

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
"""Share of the cost that a new plan must save, since changing plans has a cost."""


def workload_of(queries: Mapping[str, Join], statistics: Statistics) -> Workload:
    """Return the workload; stores have one partition, as one process executes everything."""
    streams = {name: Stream(frozenset(), rate) for name, rate in statistics.rates.items()}
    return Workload(streams, queries, statistics)


def choose_plan(workload: Workload, mode: Mode, *, materialise: bool) -> Plan:
    """Return one plan of all queries, if necessary without intermediate results.

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
    """Return plans of a mode; greedy plans if the solver is missing.

    Raises:
        Invalid: There are too many candidate probe orders.
    """
    plan_count = len(workload.queries) if mode == "individual" else 1
    options = PlanOptions(materialise, replicas=False, limit_s=_SOLVER_LIMIT_S / plan_count)
    try:
        return make_plans(workload, mode, options)
    except SolverMissing:
        groups = (
            [[name] for name in workload.queries] if mode == "individual" else [workload.queries]
        )
        return [
            plan for group in groups for plan in make_plans(workload.only(group), "greedy", options)
        ]


def is_cheaper(plan: Plan, current: Plan) -> bool:
    """Whether a plan saves enough over the current one, by the new plan's statistics."""
    statistics, parallelism = plan.workload.statistics, plan.workload.parallelism
    cost = sum(step_cost(step, statistics, parallelism) for step in steps_of(current.choice))
    return plan.cost < (1 - MARGIN) * cost
