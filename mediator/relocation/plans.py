"""Plans of workers as lists of names: each query joins its relations in an order.

Each prefix of an order is kept as an intermediate result, as in a tree of binary joins. A worker
thus changes its plan by another list, and queries with equal prefixes share states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from mediator.standing.model import Join, Statistics, Workload, stream_store
from mediator.standing.planning import Plan
from mediator.standing.probe_orders import ProbeOrder, StoreLayout, step_cost

__all__ = ["JoinOrders", "cheapest_order", "left_deep_plan", "order_cost"]

JoinOrders: TypeAlias = Mapping[str, Sequence[str]]
"""By query name, its relations in the order in which they are joined."""


def left_deep_plan(workload: Workload, orders: JoinOrders) -> Plan:
    """Return the plan that joins each query's relations in an order.

    Raises:
        ValueError: An order does not have exactly the query's relations, or has a cross product.
    """
    single_task = Workload(workload.streams, workload.queries, workload.statistics, parallelism=1)
    choice: dict[tuple[Join, str], ProbeOrder] = {}
    stores = {stream_store(name) for query in single_task.joins for name in query.relations}
    for name, query in single_task.queries.items():
        prefixes = list(_prefixes(query, orders[name]))
        stores |= set(prefixes[1:-1])
        for shorter, longer in pairwise(prefixes):
            (added,) = longer.relations - shorter.relations
            choice[longer, added] = ProbeOrder(added, (StoreLayout(shorter, None),), longer)
            for start in shorter.relations:
                steps = choice[shorter, start].steps if (shorter, start) in choice else ()
                last = StoreLayout(stream_store(added), None)
                choice[longer, start] = ProbeOrder(start, (*steps, last), longer)
    sent = {prefix for order in choice.values() for prefix in order.prefixes}
    costs = {prefix: step_cost(prefix, single_task.statistics, 1) for prefix in sent}
    layouts = tuple(sorted((StoreLayout(store, None) for store in stores), key=str))
    return Plan(
        single_task, choice, costs, layouts, sum(costs.values()), 0.0, 0, 0.0, is_greedy=True
    )


def cheapest_order(query: Join, statistics: Statistics) -> Sequence[str]:
    """Return the order with the fewest intermediate results a second.

    All orders are compared: a query has six relations at most.
    """
    best = min(_orders(query, ()), key=lambda order: (order_cost(query, order, statistics), order))
    # The order of the first two relations makes no difference.
    return (*sorted(best[:2]), *best[2:])


def order_cost(query: Join, order: Sequence[str], statistics: Statistics) -> float:
    """Return the intermediate results that an order makes in a second."""
    lengths = range(2, len(order))
    return sum(statistics.size(query.within(frozenset(order[:length]))) for length in lengths)


def _prefixes(query: Join, order: Sequence[str]) -> Iterator[Join]:
    if sorted(order) != sorted(query.relations):
        raise ValueError(f"the order does not have each relation of {query} exactly once")
    for length in range(1, len(order) + 1):
        prefix = query.within(frozenset(order[:length]))
        if prefix.reachable != prefix.relations:
            raise ValueError(f"the order makes a cross product: {prefix}")
        yield prefix


def _orders(query: Join, prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if len(prefix) == len(query.relations):
        yield prefix
        return
    candidates = query.neighbours(frozenset(prefix)) if prefix else query.relations
    for name in sorted(candidates):
        yield from _orders(query, (*prefix, name))
