"""Plans as JSON: their costs by hop, their stores, and the queries that share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mediator.standing.planning import Mode, Plan
from mediator.standing.probe_orders import ProbeOrder, StoreLayout
from mediator.standing.rules import probe_trees
from mediator.standing.runtime import Runtime
from mediator.standing.sampling import Sampling

__all__ = ["add_measurements", "describe", "describe_measured", "describe_running"]


def describe(plans: Sequence[Plan], mode: Mode) -> dict[str, Any]:
    """Return plans as JSON; costs are in tuples a second, stores in tuples."""
    cost = sum(plan.cost for plan in plans)
    bound = sum(plan.bound for plan in plans)
    return {
        "mode": mode,
        "cost": cost,
        "bound": bound,
        "gap": max(0.0, 1 - bound / cost) if cost else 0.0,
        "is_greedy": any(plan.is_greedy for plan in plans),
        "variables": sum(plan.variables for plan in plans),
        "solved_s": sum(plan.solved_s for plan in plans),
        "stored_tuples": sum(plan.stored(layout.join) for plan in plans for layout in plan.stores),
        "plans": [_plan(plan) for plan in plans],
    }


def describe_measured(plan: Plan, runtime: Runtime, duration_s: float) -> dict[str, Any]:
    """Return the measured and predicted costs of a run, in tuples a second."""
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
            {"store": str(layout), "predicted": plan.stored(layout.join), "kept": size}
            for layout, size in sorted(runtime.sizes().items(), key=str)
            if layout in plan.stores
        ],
    }


def describe_running(plan: Plan, runtime: Runtime, sampling: Sampling) -> dict[str, Any]:
    """Return a service's active plan and its measurements as JSON."""
    return {
        "queries": list(plan.workload.queries),
        "predicted": plan.cost,
        "measured": sum(sampling.sent.values()),
        "is_greedy": plan.is_greedy,
        "gap": plan.gap,
        "late": runtime.late,
        "hops": {str(order): sampling.sent.get(order) for order in _hops(plan)},
        "stores": {str(layout): size for layout, size in runtime.sizes().items()},
        "statistics": sampling.to_json(),
    }


def add_measurements(
    document: dict[str, Any], names: Mapping[str, str], running: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Add the service's measurements to a description of plans, where it executes the same.

    Args:
        document: The result of `describe`.
        names: Names of queries, by id.
        running: The result of `describe_running`; None: nothing is executed yet.
    """
    hops, stores = (running["hops"], running["stores"]) if running else ({}, {})
    for plan in document["plans"]:
        for hop in plan["hops"]:
            hop["measured"] = hops.get(hop["order"])
        for store in plan["stores"]:
            store["kept"] = stores.get(store["store"])
    members = ("predicted", "measured", "is_greedy", "gap", "late", "stores")
    summary = None if running is None else {name: running[name] for name in members}
    rates = running["statistics"]["rates"] if running else {}
    return {**document, "names": dict(names), "rates": rates, "running": summary}


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
    users = [str(user.join) for user in plan.choice.values() if order in user.prefixes]
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
