"""Plans of continuous queries as JSON, single and over a range of rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from mediator.continuous.model import Operator, Query, inputs_of, post_order, relational
from mediator.continuous.order import Engine, PlanCost
from mediator.continuous.planning import Plan, PlanOptions, everything_on, make_plan
from mediator.continuous.rates import rates_of

__all__ = ["describe", "describe_sweep"]


def describe(plan: Plan, options: PlanOptions) -> dict[str, Any]:
    """Return a plan: tuples received and produced, cost and engine of each operator."""
    return {
        "cost": _cost(plan.physical.cost),
        "plans_examined": plan.physical.examined,
        "phase_one_s": plan.phase_one_s,
        "phase_two_s": plan.phase_two_s,
        "operators": list(_operators(plan, options)),
    }


def describe_sweep(query: Query, factors: Sequence[float], options: PlanOptions) -> dict[str, Any]:
    """Return the best plan at each rate, with the costs of plans on a single engine."""
    rates = [_at_rate(query.at_rate(factor), factor, options) for factor in factors]
    switches = [
        {"factor": after["factor"], "from": before["in_database"], "to": after["in_database"]}
        for before, after in pairwise(rates)
        if before["in_database"] != after["in_database"]
    ]
    return {"rates": rates, "switches": switches}


def _at_rate(query: Query, factor: float, options: PlanOptions) -> dict[str, Any]:
    plan = make_plan(query, options)
    single_engine = {engine: everything_on(engine, plan.query, options) for engine in Engine}
    return {
        "factor": factor,
        "rates": {name: stream.rate for name, stream in query.streams.items()},
        "in_database": _placed_in_database(plan),
        "cost": _cost(plan.physical.cost),
        "all_spark": _cost(single_engine[Engine.SPARK].physical.cost),
        "all_database": _cost(single_engine[Engine.DATABASE].physical.cost),
    }


def _operators(plan: Plan, options: PlanOptions) -> Iterable[dict[str, Any]]:
    costs, rates = options.costs(plan.query), rates_of(plan.query)
    statements = {fragment[-1].name: fragment for fragment in plan.physical.fragments}
    inside = {operator.name: root for root, fragment in statements.items() for operator in fragment}
    for operator in post_order(plan.query.root):
        name = operator.name
        if name in statements:
            utilisation: float | None = costs.in_database(statements[name])
        else:
            utilisation = None if name in inside else costs.on_spark(operator)
        yield {
            "name": name,
            "kind": type(operator).__name__.lower(),
            "of": [input_.name for input_ in inputs_of(operator)],
            "engine": plan.physical.engines[name].value,
            "statement": inside.get(name),
            "received": list(rates[name].received),
            "produced": rates[name].produced,
            "size": rates[name].size,
            "utilisation": utilisation,
        }


def _placed_in_database(plan: Plan) -> list[str]:
    def is_placed(operator: Operator) -> bool:
        return plan.physical.engines[operator.name] is Engine.DATABASE

    return [operator.name for operator in relational(plan.query.root) if is_placed(operator)]


def _cost(cost: PlanCost) -> dict[str, Any]:
    return {
        "bottleneck": cost.bottleneck,
        "total": cost.total,
        "is_feasible": cost.is_feasible,
    }
