"""The choice of probe orders as a 0/1 program, solved by HiGHS within a time limit.

There is a variable for each probe order, each prefix, each intermediate result, and each layout of
a store. docs/papers/clash.md says where the rows differ from those of the paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mediator.base.integer_program import AT_MOST, Rows, minimise
from mediator.standing.model import Join
from mediator.standing.probe_orders import ProbeOrder
from mediator.standing.problem import Choice, Problem, needed

__all__ = ["Solution", "solve"]


@dataclass(frozen=True, slots=True)
class Solution:
    """What the solver found.

    Attributes:
        choice: None: nothing within the time limit.
        bound: What no choice costs less than, in tuples a second.
        solved_s: The time that it took.
    """

    choice: Choice | None
    bound: float
    solved_s: float


class _Program:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        orders = [each for some in problem.candidates.values() for each in some]
        # A probe order is a variable of its own, though as a prefix it is another one, too.
        self.orders = {order: number for number, order in enumerate(orders)}
        self._steps = _numbered(problem.costs, len(orders))
        self._kept = _numbered(problem.intermediates, len(orders) + len(self._steps))
        used = dict.fromkeys(step for order in orders for step in order.steps)
        self._layouts = _numbered(used, len(orders) + len(self._steps) + len(self._kept))
        self.size = len(orders) + len(self._steps) + len(self._kept) + len(self._layouts)
        self.rows = Rows()
        self._choose_orders()
        self._pay_for_steps()
        self._fill_what_is_probed()
        if not problem.replicas:
            self._keep_stores_once()

    @property
    def costs(self) -> list[float]:
        costs = [0.0] * self.size
        for step, number in self._steps.items():
            costs[number] = self._problem.costs[step]
        return costs

    def _choose_orders(self) -> None:
        """One for each relation: always of a query, of an intermediate result if it is kept."""
        for (join, _), orders in self._problem.candidates.items():
            variables = [self.orders[order] for order in orders]
            if join in self._kept:
                self.rows.add(variables, [self._kept[join]], 0, 0)
            else:
                self.rows.add(variables, [], 1, 1)

    def _pay_for_steps(self) -> None:
        self._need(lambda order: order.prefixes, self._steps)

    def _fill_what_is_probed(self) -> None:
        self._need(lambda order: order.probed & self._kept.keys(), self._kept)

    def _keep_stores_once(self) -> None:
        layouts: defaultdict[Join, list[int]] = defaultdict(list)
        for layout, number in self._layouts.items():
            layouts[layout.join].append(number)
        for variables in layouts.values():
            self.rows.add(variables, [], AT_MOST, 1)
        self._need(lambda order: order.steps, self._layouts)

    def _need(
        self, needs: Callable[[ProbeOrder], Iterable[Any]], variables: Mapping[Any, int]
    ) -> None:
        """Choose no order without all that it needs.

        Of the orders of one start one is chosen. So a row has all that need the same: with a row
        for each, fractions of many orders would be paid for as one fraction.
        """
        for orders in self._problem.candidates.values():
            needing: defaultdict[Any, list[int]] = defaultdict(list)
            for order in orders:
                for need in needs(order):
                    needing[need].append(self.orders[order])
            for need, some in needing.items():
                self.rows.add(some, [variables[need]], AT_MOST, 0)


def solve(problem: Problem, limit_s: float) -> Solution:
    """Find the cheapest choice.

    Args:
        limit_s: When it ends with the best choice found until then.

    Raises:
        SolverMissing: SciPy is not installed.
    """
    program = _Program(problem)
    # Only orders have to be whole: cost pulls the other variables down to the sums of orders.
    found = minimise(program.costs, program.rows, len(program.orders), limit_s)
    if found.values is None:
        return Solution(None, found.bound, found.solved_s)
    half = 0.5
    chosen = {
        (order.join, order.start): order
        for order, number in program.orders.items()
        if found.values[number] > half
    }
    # The program may keep what costs nothing, though nothing probes it.
    return Solution(needed(problem.queries, chosen), found.bound, found.solved_s)


def _numbered(items: Any, first: int) -> dict[Any, int]:
    return {item: number for number, item in enumerate(items, first)}
