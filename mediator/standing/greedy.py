"""The greedy choice: for each query and relation, the order that adds the least cost.

It is always valid, and takes no longer than listing the candidates. It materialises only joins that
are queries.
"""

from __future__ import annotations

from mediator.standing.model import Join
from mediator.standing.probe_orders import ProbeOrder, StoreLayout
from mediator.standing.problem import Choice, Problem, Start

__all__ = ["greedy_choice"]


def greedy_choice(problem: Problem) -> Choice:
    """Return a valid choice."""
    queried = set(problem.queries)
    chosen: dict[Start, ProbeOrder] = {}
    paid_steps: set[ProbeOrder] = set()
    layouts: dict[Join, StoreLayout] = {}

    def is_possible(order: ProbeOrder) -> bool:
        return all(
            (len(step.join.relations) == 1 or step.join in queried)
            and (problem.replicas or layouts.get(step.join, step) == step)
            for step in order.steps
        )

    def added_cost(order: ProbeOrder) -> float:
        return sum(problem.costs[prefix] for prefix in order.prefixes if prefix not in paid_steps)

    for query in problem.queries:
        for start in sorted(query.relations):
            # Whatever the layouts are, some order probes only streams.
            possible = filter(is_possible, problem.candidates[query, start])
            order = chosen[query, start] = min(possible, key=added_cost)
            paid_steps.update(order.prefixes)
            layouts.update((step.join, step) for step in order.steps)
    return chosen
