"""Phase two: the engine of each operator, bottom-up, with the paper's rule of pruning.

A statement that takes one more operator may cost less than before, so a partial plan whose root is
in the database cannot be discarded. Of partial plans whose root is on Spark the best one is enough,
as nothing above changes what they cost.

With n operators in a row n + 1 plans are left of 2ⁿ. Where joins branch, about 2^(n/2) are: larger
queries are divided into subplans, and each is fixed before what is above it.
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

__all__ = ["SUBPLAN", "PhysicalPlan", "TooManyPlans", "place", "placed_as"]

SUBPLAN: Final = 15
"""Operators of a subplan, which the paper found to take about a second."""

_MOST_PLANS: Final = 20_000


class TooManyPlans(Exception):
    """The query has to be divided, or divided further."""

    def __init__(self) -> None:
        super().__init__(f"there are more than {_MOST_PLANS:,} plans to compare")


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """Where operators run.

    Attributes:
        engines: By the operator's name.
        fragments: Operators of each statement, in post-order: the last one is its root.
        examined: Complete plans that were compared, of each subplan.
    """

    root: Operator
    engines: dict[str, Engine]
    fragments: tuple[tuple[Operator, ...], ...]
    cost: PlanCost
    examined: int


@dataclass(frozen=True, slots=True)
class _Partial:
    """A plan for an operator and what is below it.

    Attributes:
        closed: Usage without the statement that the root is in.
        statement: The operators of that statement; none if the root is on Spark.
    """

    root: Operator
    closed: Usage
    statement: tuple[Operator, ...]
    below: tuple[_Partial, ...]


def place(
    root: Operator, costs: Costs, capacity: Capacity = UNLIMITED, most: int | None = SUBPLAN
) -> PhysicalPlan:
    """Return the best plan; `most` are the operators of a subplan, None: it is not divided.

    Raises:
        TooManyPlans: Undivided, it has too many plans.
    """
    search = _Search(costs, capacity, most)
    plans, _ = search.plans(root)
    return _described(search.best(plans), search, search.examined + len(plans))


def placed_as(
    root: Operator, engines: Mapping[str, Engine], costs: Costs, capacity: Capacity = UNLIMITED
) -> PhysicalPlan:
    """Return the plan with the given engines; windows are always on Spark."""
    search = _Search(costs, capacity, None)

    def build(operator: Operator) -> _Partial:
        below = tuple(build(each) for each in inputs_of(operator))
        in_database = engines.get(operator.name) is Engine.DATABASE
        return (search.in_database if in_database else search.on_spark)(operator, below)

    return _described(build(root), search, 1)


class _Search:
    def __init__(self, costs: Costs, capacity: Capacity, most: int | None) -> None:
        self._costs, self._capacity, self._most = costs, capacity, most
        self.examined = 0

    def plans(self, root: Operator) -> tuple[list[_Partial], int]:
        """Return the partial plans that are kept, and how many operators are not fixed in them."""
        below = [self.plans(each) for each in inputs_of(root)]
        if isinstance(root, Window):
            return [self.on_spark(root, ())], 0
        if self._most is not None:
            self._divide(below, self._most)
        if prod(len(plans) for plans, _ in below) > _MOST_PLANS:
            raise TooManyPlans
        choices = [plans for plans, _ in below]
        placed = [self.in_database(root, each) for each in product(*choices)]
        return [*self._spark_plans(root, choices), *placed], 1 + sum(n for _, n in below)

    def best(self, plans: Sequence[_Partial]) -> _Partial:
        return min(plans, key=lambda each: self.cost(each).order)

    def cost(self, plan: _Partial) -> PlanCost:
        return self._capacity.cost(self._usage(plan))

    def _divide(self, below: list[tuple[list[_Partial], int]], most: int) -> None:
        """Fix the largest input, and the other one, if the operator above would be one too many."""
        while sum(n for _, n in below) >= most:
            at = max(range(len(below)), key=lambda each: below[each][1])
            plans = below[at][0]
            self.examined += len(plans)
            below[at] = [self.best(plans)], 0

    def _spark_plans(self, root: Operator, choices: Sequence[list[_Partial]]) -> list[_Partial]:
        """Extend the best plan of each input.

        If operators share cores, sums decide about what is above, and no single plan is the best:
        those are extended that no other one is below in all of them.
        """
        if self._capacity == UNLIMITED:
            return [self.on_spark(root, tuple(self.best(plans) for plans in choices))]
        fronts = [self._front(plans) for plans in choices]
        return self._front([self.on_spark(root, each) for each in product(*fronts)])

    def _front(self, plans: Sequence[_Partial]) -> list[_Partial]:
        front: list[tuple[Usage, _Partial]] = []
        for plan in sorted(plans, key=lambda each: _sum(self._usage(each))):
            usage = self._usage(plan)
            if not any(other.is_at_most(usage) for other, _ in front):
                front.append((usage, plan))
        return [plan for _, plan in front]

    def on_spark(self, root: Operator, below: tuple[_Partial, ...]) -> _Partial:
        cost = self._costs.on_spark(root)
        usage = Usage(cost, cost)
        for each in below:
            usage = usage.plus(self._usage(each))
        return _Partial(root, usage, (), below)

    def in_database(self, root: Operator, below: tuple[_Partial, ...]) -> _Partial:
        usage = Usage()
        for each in below:
            usage = usage.plus(each.closed)
        statement = tuple(each for plan in below for each in plan.statement)
        return _Partial(root, usage, (*statement, root), below)

    def _usage(self, plan: _Partial) -> Usage:
        """Return the usage of a plan whose statement ends here."""
        if not plan.statement:
            return plan.closed
        cost = self._costs.in_database(plan.statement)
        return plan.closed.plus(Usage(cost, database=cost))


def _described(plan: _Partial, search: _Search, examined: int) -> PhysicalPlan:
    engines, fragments = {}, []
    for each, is_root in _walk(plan, is_root=True):
        engines[each.root.name] = Engine.DATABASE if each.statement else Engine.SPARK
        if is_root and each.statement:
            fragments.append(each.statement)
    return PhysicalPlan(plan.root, engines, tuple(fragments), search.cost(plan), examined)


def _walk(plan: _Partial, *, is_root: bool) -> Iterator[tuple[_Partial, bool]]:
    """Go through a plan in post-order, with whether each is the root of a statement."""
    for each in plan.below:
        yield from _walk(each, is_root=not plan.statement)
    yield plan, is_root


def _sum(usage: Usage) -> float:
    return usage.spark + usage.database
