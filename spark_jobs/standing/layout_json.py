"""Joins, layouts and probe orders as JSON, for commits and to compare plans."""

from __future__ import annotations

from typing import Any

import orjson

from mediator.standing.model import Attribute, Join
from mediator.standing.planning import Plan
from mediator.standing.probe_orders import ProbeOrder, StoreLayout

__all__ = ["fingerprint", "layout_from_json", "layout_to_json", "order_to_json"]


def layout_to_json(layout: StoreLayout) -> dict[str, Any]:
    partition = None if layout.partition is None else list(layout.partition)
    return {**_join_to_json(layout.join), "partition": partition}


def layout_from_json(document: dict[str, Any]) -> StoreLayout:
    predicates = frozenset(
        frozenset(Attribute(*each) for each in predicate) for predicate in document["predicates"]
    )
    join = Join(frozenset(document["relations"]), predicates, document["window_s"])
    partition = document["partition"]
    return StoreLayout(join, None if partition is None else Attribute(*partition))


def order_to_json(order: ProbeOrder) -> dict[str, Any]:
    steps = [layout_to_json(each) for each in order.steps]
    return {"start": order.start, "steps": steps, "join": _join_to_json(order.join)}


def fingerprint(plan: Plan) -> str:
    """Return the same text for plans that are executed in the same way."""
    document = {
        "queries": {name: _join_to_json(of) for name, of in plan.workload.queries.items()},
        "streams": sorted(plan.workload.streams),
        "orders": sorted(map(_text, map(order_to_json, plan.choice.values()))),
        "stores": sorted(map(_text, map(layout_to_json, plan.stores))),
        "parallelism": plan.workload.parallelism,
    }
    return _text(document)


def _join_to_json(join: Join) -> dict[str, Any]:
    predicates = sorted(sorted(map(list, each)) for each in join.predicates)
    relations = sorted(join.relations)
    return {"relations": relations, "predicates": predicates, "window_s": join.window_s}


def _text(document: dict[str, Any]) -> str:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
