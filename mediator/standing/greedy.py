"""The greedy choice: query by query, relation by relation, the order that adds least to the cost.

It is always valid, and takes no more time than listing the candidates did. It materialises nothing
but what is asked for anyway.
"""

from __future__ import annotations

from mediator.standing.model import Join
from mediator.standing.probe_orders import ProbeOrder, StoreLayout
from mediator.standing.problem import Choice, Problem, Start

__all__ = ["greedy_choice"]


def greedy_choice(problem: Problem) -> Choice:
    """Return a valid choice."""
    asked = set(problem.queries)
    chosen: dict[Start, ProbeOrder] = {}
    paid: set[ProbeOrder] = set()
    layouts: dict[Join, StoreLayout] = {}

    def is_possible(order: ProbeOrder) -> bool:
        return all(
            (len(step.join.relations) == 1 or step.join in asked)
            and (problem.replicas or layouts.get(step.join, step) == step)
            for step in order.steps
        )

    def added_cost(order: ProbeOrder) -> float:
        return sum(problem.costs[each] for each in order.prefixes if each not in paid)

    for query in problem.queries:
        for start in sorted(query.relations):
            # Whatever the layouts are, some order probes the streams alone.
            possible = filter(is_possible, problem.candidates[query, start])
            order = chosen[query, start] = min(possible, key=added_cost)
            paid.update(order.prefixes)
            layouts.update((step.join, step) for step in order.steps)
    return chosen
