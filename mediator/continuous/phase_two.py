"""Phase two: the engine of each operator, bottom-up, with the paper's pruning rule.

A statement with one more operator can cost less than before, so a partial plan whose root is in the
database cannot be discarded. Of partial plans whose root is on Spark, the best one is enough, as
nothing above changes their cost.

With n operators in a row, n + 1 plans remain of 2ⁿ. Where joins branch, about 2^(n/2) remain:
larger queries are divided into subplans, and each is fixed before the operators above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from mediator.continuous.costs import Costs
from mediator.continuous.model import Operator, Window, inputs_of
from mediator.continuous.order import UNLIMITED, Capacity, Engine, PlanCost, Usage

__all__ = ["SUBPLAN", "PhysicalPlan", "TooManyPlans", "place", "place_as"]

SUBPLAN: Final = 15
"""Maximum operators of a subplan, which the paper found to take about a second."""

_MAX_PLANS: Final = 20_000


class TooManyPlans(Exception):
    """The query must be divided, or divided further."""

    def __init__(self) -> None:
        super().__init__(f"there are more than {_MAX_PLANS:,} plans to compare")


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A plan with the engines of its operators.

    Attributes:
        engines: By the operator's name.
        fragments: Operators of each statement, in post-order: the last one is its root.
        examined: Complete plans compared, summed over the subplans.
    """

    root: Operator
    engines: dict[str, Engine]
    fragments: tuple[tuple[Operator, ...], ...]
    cost: PlanCost
    examined: int


@dataclass(frozen=True, slots=True)
class _Partial:
    """A plan for an operator and the operators below it.

    Attributes:
        closed: Usage without the root's statement.
        statement: The operators of the root's statement; empty if the root is on Spark.
    """

    root: Operator
    closed: Usage
    statement: tuple[Operator, ...]
    below: tuple[_Partial, ...]


def place(
    root: Operator, costs: Costs, capacity: Capacity = UNLIMITED, max_subplan: int | None = SUBPLAN
) -> PhysicalPlan:
    """Return the best plan; `max_subplan` bounds a subplan's operators, None: no division.

    Raises:
        TooManyPlans: Undivided, it has too many plans.
    """
    search = _Search(costs, capacity, max_subplan)
    plans, _ = search.plans(root)
    return _describe(search.best(plans), search, search.examined + len(plans))


def place_as(
    root: Operator, engines: Mapping[str, Engine], costs: Costs, capacity: Capacity = UNLIMITED
) -> PhysicalPlan:
    """Return the plan with the given engines; windows are always on Spark."""
    search = _Search(costs, capacity, None)

    def build(operator: Operator) -> _Partial:
        below = tuple(build(input_) for input_ in inputs_of(operator))
        in_database = engines.get(operator.name) is Engine.DATABASE
        return (search.in_database if in_database else search.on_spark)(operator, below)

    return _describe(build(root), search, 1)


class _Search:
    def __init__(self, costs: Costs, capacity: Capacity, max_subplan: int | None) -> None:
        self._costs, self._capacity, self._max_subplan = costs, capacity, max_subplan
        self.examined = 0

    def plans(self, root: Operator) -> tuple[list[_Partial], int]:
        """Return the kept partial plans, and how many of their operators are not fixed."""
        below = [self.plans(input_) for input_ in inputs_of(root)]
        if isinstance(root, Window):
            return [self.on_spark(root, ())], 0
        if self._max_subplan is not None:
            self._divide(below, self._max_subplan)
        if prod(len(plans) for plans, _ in below) > _MAX_PLANS:
            raise TooManyPlans
        choices = [plans for plans, _ in below]
        in_database = [self.in_database(root, inputs) for inputs in product(*choices)]
        return [*self._spark_plans(root, choices), *in_database], 1 + sum(n for _, n in below)

    def best(self, plans: Sequence[_Partial]) -> _Partial:
        return min(plans, key=lambda plan: self.cost(plan).order)

    def cost(self, plan: _Partial) -> PlanCost:
        return self._capacity.cost(self._usage(plan))

    def _divide(self, below: list[tuple[list[_Partial], int]], max_subplan: int) -> None:
        """Fix the largest input, then the other, while the operator above would be one too many."""
        while sum(n for _, n in below) >= max_subplan:
            largest = max(range(len(below)), key=lambda number: below[number][1])
            plans = below[largest][0]
            self.examined += len(plans)
            below[largest] = [self.best(plans)], 0

    def _spark_plans(self, root: Operator, choices: Sequence[list[_Partial]]) -> list[_Partial]:
        """Extend the best plan of each input.

        If operators share cores, sums matter to the operators above, and no single plan is the
        best: the Pareto-optimal plans are extended.
        """
        if self._capacity == UNLIMITED:
            return [self.on_spark(root, tuple(self.best(plans) for plans in choices))]
        fronts = [self._front(plans) for plans in choices]
        return self._front([self.on_spark(root, inputs) for inputs in product(*fronts)])

    def _front(self, plans: Sequence[_Partial]) -> list[_Partial]:
        front: list[tuple[Usage, _Partial]] = []
        for plan in sorted(plans, key=lambda plan: _sum(self._usage(plan))):
            usage = self._usage(plan)
            if not any(other.is_at_most(usage) for other, _ in front):
                front.append((usage, plan))
        return [plan for _, plan in front]

    def on_spark(self, root: Operator, below: tuple[_Partial, ...]) -> _Partial:
        cost = self._costs.on_spark(root)
        usage = Usage(cost, cost)
        for plan in below:
            usage = usage.plus(self._usage(plan))
        return _Partial(root, usage, (), below)

    def in_database(self, root: Operator, below: tuple[_Partial, ...]) -> _Partial:
        usage = Usage()
        for plan in below:
            usage = usage.plus(plan.closed)
        statement = tuple(operator for plan in below for operator in plan.statement)
        return _Partial(root, usage, (*statement, root), below)

    def _usage(self, plan: _Partial) -> Usage:
        """Return the usage of a plan whose statement ends here."""
        if not plan.statement:
            return plan.closed
        cost = self._costs.in_database(plan.statement)
        return plan.closed.plus(Usage(cost, database=cost))


def _describe(plan: _Partial, search: _Search, examined: int) -> PhysicalPlan:
    engines, fragments = {}, []
    for partial, is_root in _walk(plan, is_root=True):
        engines[partial.root.name] = Engine.DATABASE if partial.statement else Engine.SPARK
        if is_root and partial.statement:
            fragments.append(partial.statement)
    return PhysicalPlan(plan.root, engines, tuple(fragments), search.cost(plan), examined)


def _walk(plan: _Partial, *, is_root: bool) -> Iterator[tuple[_Partial, bool]]:
    """Yield partial plans in post-order, and whether each is the root of a statement."""
    for partial in plan.below:
        yield from _walk(partial, is_root=not plan.statement)
    yield plan, is_root


def _sum(usage: Usage) -> float:
    return usage.spark + usage.database
