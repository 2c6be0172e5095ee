"""What a plan does, as JSON: its cost hop by hop, its stores, and which queries share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mediator.standing.planning import Mode, Plan
from mediator.standing.probe_orders import ProbeOrder, StoreLayout
from mediator.standing.rules import probe_trees
from mediator.standing.runtime import Runtime
from mediator.standing.sampling import Sampling

__all__ = ["describe", "describe_measured", "describe_running", "with_measured"]


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


def describe_running(plan: Plan, runtime: Runtime, sampling: Sampling) -> dict[str, Any]:
    """Return what a service executes, and what it has measured, as JSON."""
    return {
        "queries": list(plan.workload.queries),
        "predicted": plan.cost,
        "measured": sum(sampling.sent.values()),
        "is_greedy": plan.is_greedy,
        "gap": plan.gap,
        "late": runtime.late,
        "hops": {str(order): sampling.sent.get(order) for order in _hops(plan)},
        "stores": {str(layout): kept for layout, kept in runtime.kept().items()},
        "statistics": sampling.to_json(),
    }


def with_measured(
    document: dict[str, Any], names: Mapping[str, str], running: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Add to a description of plans what the service has measured, where it executes the same.

    Args:
        document: That of `describe`.
        names: Of queries, by id.
        running: The report of `describe_running`; None: nothing is executed yet.
    """
    hops, stores = (running["hops"], running["stores"]) if running else ({}, {})
    for plan in document["plans"]:
        for hop in plan["hops"]:
            hop["measured"] = hops.get(hop["order"])
        for store in plan["stores"]:
            store["kept"] = stores.get(store["store"])
    shown = ("predicted", "measured", "is_greedy", "gap", "late", "stores")
    present = None if running is None else {name: running[name] for name in shown}
    rates = running["statistics"]["rates"] if running else {}
    return {**document, "names": dict(names), "rates": rates, "running": present}


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
