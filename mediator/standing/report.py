"""What a plan does, as JSON: its cost hop by hop, its stores, and which queries share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mediator.standing.planning import Mode, Plan
from mediator.standing.probe_orders import ProbeOrder, StoreLayout
from mediator.standing.rules import probe_trees
from mediator.standing.runtime import Runtime

__all__ = ["describe", "describe_measured"]


def describe(plans: Sequence[Plan], mode: Mode) -> dict[str, Any]:
    """Return plans as JSON; costs are in tuples a second, what stores hold in tuples."""
    cost = sum(each.cost for each in plans)
    bound = sum(each.bound for each in plans)
    return {
        "mode": mode,
        "cost": cost,
        "bound": bound,
        "gap": max(0.0, 1 - bound / cost) if cost else 0.0,
        "is_greedy": any(each.is_greedy for each in plans),
        "variables": sum(each.variables for each in plans),
        "solved_s": sum(each.solved_s for each in plans),
        "stored_tuples": sum(each.stored(at.join) for each in plans for at in each.stores),
        "plans": [_plan(each) for each in plans],
    }


def describe_measured(plan: Plan, runtime: Runtime, duration_s: float) -> dict[str, Any]:
    """Return what was sent in a run, beside what was predicted; all in tuples a second."""
    hops = [
        {
            "order": str(order),
            "predicted": plan.costs[order],
            "measured": runtime.sent[order] / duration_s,
        }
        for order in _hops(plan)
    ]
    return {
        "queries": list(plan.workload.queries),
        "predicted": plan.cost,
        "measured": runtime.sent.total() / duration_s,
        "late": runtime.late,
        "hops": hops,
        "stores": [
            {"store": str(layout), "predicted": plan.stored(layout.join), "kept": kept}
            for layout, kept in sorted(runtime.kept().items(), key=str)
            if layout in plan.stores
        ],
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "queries": list(plan.workload.queries),
        "cost": plan.cost,
        "hops": [_hop(plan, order) for order in _hops(plan)],
        "stores": [_store(plan, layout) for layout in plan.stores],
    }


def _hops(plan: Plan) -> list[ProbeOrder]:
    return [step for tree in probe_trees(plan.choice.values()).values() for step in tree]


def _hop(plan: Plan, order: ProbeOrder) -> dict[str, Any]:
    users = [str(each.join) for each in plan.choice.values() if order in each.prefixes]
    return {
        "order": str(order),
        "from": str(order.steps[-2]) if len(order.steps) > 1 else order.start,
        "to": str(order.steps[-1]),
        "cost": plan.costs[order],
        "joins": sorted(users),
    }


def _store(plan: Plan, layout: StoreLayout) -> dict[str, Any]:
    return {
        "store": str(layout),
        "relations": sorted(layout.join.relations),
        "tuples": plan.stored(layout.join),
        "queries": plan.readers(layout.join),
    }
