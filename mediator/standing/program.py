"""The choice of probe orders as a 0/1 program, solved by HiGHS within a time limit.

There is a variable for each probe order, each prefix, each intermediate result, and each layout of
a store. docs/papers/clash.md says where the rows differ from those of the paper.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

from mediator.base.errors import PortolanError
from mediator.standing.model import Join
from mediator.standing.probe_orders import ProbeOrder
from mediator.standing.problem import Choice, Problem, needed

__all__ = ["Solution", "SolverMissing", "solve"]

_GAP: Final = 1e-6
"""A choice this close to the bound is taken for the best."""

_AT_MOST: Final = -math.inf


class SolverMissing(PortolanError):
    """SciPy is not there: it comes with the extra `standing`."""


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


@dataclass(slots=True)
class _Rows:
    """Rows of a sparse matrix, each with its limits."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(self, positive: list[int], negative: list[int], lower: float, upper: float) -> None:
        """Limit the sum of some variables less that of others."""
        self.columns += positive + negative
        self.values += [1.0] * len(positive) + [-1.0] * len(negative)
        self.rows += [len(self.lower)] * (len(positive) + len(negative))
        self.lower.append(lower)
        self.upper.append(upper)


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
        self.rows = _Rows()
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
            self.rows.add(variables, [], _AT_MOST, 1)
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
                self.rows.add(some, [variables[need]], _AT_MOST, 0)


def solve(problem: Problem, limit_s: float) -> Solution:
    """Find the cheapest choice.

    Args:
        limit_s: When it ends with the best choice found until then.

    Raises:
        SolverMissing: SciPy is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - an extra
        from scipy.sparse import csr_array  # noqa: PLC0415 - the same
    except ModuleNotFoundError as error:
        raise SolverMissing("The solver needs SciPy: install portolan[standing].") from error
    program = _Program(problem)
    rows = program.rows
    matrix = csr_array((rows.values, (rows.rows, rows.columns)), (len(rows.lower), program.size))
    # Only orders have to be whole: cost pulls the other variables down to the sums of orders.
    integrality = [1] * len(program.orders) + [0] * (program.size - len(program.orders))
    started = perf_counter()
    found: Any = milp(
        program.costs,
        integrality=integrality,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, rows.lower, rows.upper),
        options={"time_limit": limit_s, "mip_rel_gap": _GAP},
    )
    solved_s = perf_counter() - started
    bound = found.mip_dual_bound
    # No cost is below zero.
    least = max(0.0, float(bound)) if bound is not None and math.isfinite(bound) else 0.0
    if found.x is None:
        return Solution(None, least, solved_s)
    half = 0.5
    chosen = {
        (order.join, order.start): order
        for order, number in program.orders.items()
        if found.x[number] > half
    }
    # The program may keep what costs nothing, though nothing probes it.
    return Solution(needed(problem.queries, chosen), least, solved_s)


def _numbered(items: Any, first: int) -> dict[Any, int]:
    return {item: number for number, item in enumerate(items, first)}
