"""The choice of probe orders as a 0/1 integer program, solved by HiGHS within a time limit.

The variables are probe orders, prefixes, intermediate results and layouts of stores.
docs/papers/clash.md describes where the rows differ from the paper's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mediator.base.integer_program import AT_MOST, Rows, minimise
from mediator.standing.model import Join
from mediator.standing.probe_orders import ProbeOrder
from mediator.standing.problem import Choice, Problem, prune

__all__ = ["Solution", "solve"]


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of the solver.

    Attributes:
        choice: None: none was found within the time limit.
        bound: Lower bound on the cost of any choice, in tuples a second.
        solved_s: Solving time, in seconds.
    """

    choice: Choice | None
    bound: float
    solved_s: float


class _Program:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        orders = [order for group in problem.candidates.values() for order in group]
        # A probe order and its longest prefix are two different variables.
        self.orders = {order: number for number, order in enumerate(orders)}
        self._steps = _number(problem.costs, len(orders))
        self._intermediates = _number(problem.intermediates, len(orders) + len(self._steps))
        layouts = dict.fromkeys(step for order in orders for step in order.steps)
        self._layouts = _number(layouts, len(orders) + len(self._steps) + len(self._intermediates))
        self.size = len(orders) + len(self._steps) + len(self._intermediates) + len(self._layouts)
        self.rows = Rows()
        self._choose_orders()
        self._pay_for_steps()
        self._fill_probed_stores()
        if not problem.replicas:
            self._limit_layouts()

    @property
    def costs(self) -> list[float]:
        costs = [0.0] * self.size
        for step, number in self._steps.items():
            costs[number] = self._problem.costs[step]
        return costs

    def _choose_orders(self) -> None:
        """One per relation: for every query, and for materialised intermediate results."""
        for (join, _), orders in self._problem.candidates.items():
            variables = [self.orders[order] for order in orders]
            if join in self._intermediates:
                self.rows.add(variables, [self._intermediates[join]], 0, 0)
            else:
                self.rows.add(variables, [], 1, 1)

    def _pay_for_steps(self) -> None:
        self._require(lambda order: order.prefixes, self._steps)

    def _fill_probed_stores(self) -> None:
        self._require(lambda order: order.probed & self._intermediates.keys(), self._intermediates)

    def _limit_layouts(self) -> None:
        layouts: defaultdict[Join, list[int]] = defaultdict(list)
        for layout, number in self._layouts.items():
            layouts[layout.join].append(number)
        for variables in layouts.values():
            self.rows.add(variables, [], AT_MOST, 1)
        self._require(lambda order: order.steps, self._layouts)

    def _require(
        self, needs_of: Callable[[ProbeOrder], Iterable[Any]], variables: Mapping[Any, int]
    ) -> None:
        """Require everything that a chosen order needs.

        One order is chosen per start, so one row has all orders with the same need: with a row per
        order, fractions of many orders would be paid for as one fraction.
        """
        for orders in self._problem.candidates.values():
            orders_by_need: defaultdict[Any, list[int]] = defaultdict(list)
            for order in orders:
                for need in needs_of(order):
                    orders_by_need[need].append(self.orders[order])
            for need, order_variables in orders_by_need.items():
                self.rows.add(order_variables, [variables[need]], AT_MOST, 0)


def solve(problem: Problem, limit_s: float) -> Solution:
    """Find the cheapest choice.

    Args:
        limit_s: Time limit in seconds, after which it returns the best choice so far.

    Raises:
        SolverMissing: SciPy is not installed.
    """
    program = _Program(problem)
    # Only orders must be integers: cost pulls the other variables down to the sums of orders.
    minimum = minimise(program.costs, program.rows, len(program.orders), limit_s)
    if minimum.values is None:
        return Solution(None, minimum.bound, minimum.solved_s)
    half = 0.5
    chosen = {
        (order.join, order.start): order
        for order, number in program.orders.items()
        if minimum.values[number] > half
    }
    # The program may keep intermediate results that cost nothing and are not probed.
    return Solution(prune(problem.queries, chosen), minimum.bound, minimum.solved_s)


def _number(items: Any, first: int) -> dict[Any, int]:
    return {item: number for number, item in enumerate(items, first)}
