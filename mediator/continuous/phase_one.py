"""Phase one: the best order of joins, as if all operators were on Spark.

Dynamic programming over sets of inputs (System R; Selinger et al. 1979), without cross products.
The principle of optimality holds, since the cost of a further join is the same above every plan of
the same inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from mediator.continuous.costs import Costs
from mediator.continuous.model import Join, Operator, Query, inputs_of, post_order, with_inputs
from mediator.continuous.order import Capacity, Usage

__all__ = ["order_joins"]


def order_joins(query: Query, costs: Costs, capacity: Capacity) -> Query:
    """Return the query with the joins in their best order; they keep a name for the same inputs."""
    names = {_inputs_below(each): each.name for each in post_order(query.root) if _is_join(each)}
    ordering = _Ordering(costs, capacity, names, {each.name for each in post_order(query.root)})
    return replace(query, root=ordering.ordered(query.root))


class _Ordering:
    def __init__(
        self,
        costs: Costs,
        capacity: Capacity,
        names: Mapping[frozenset[str], str],
        taken: set[str],
    ) -> None:
        self._costs, self._capacity, self._names = costs, capacity, names
        new = (f"join_{number}" for number in count(1))
        self._new = (name for name in new if name not in taken)
        self._made: dict[frozenset[str], str] = {}

    def ordered(self, root: Operator) -> Operator:
        if not _is_join(root):
            return with_inputs(root, tuple(self.ordered(each) for each in inputs_of(root)))
        inputs = [self.ordered(each) for each in _inputs(root)]
        known = _masks(root)
        best: dict[int, tuple[Usage, Operator]] = {
            1 << at: (Usage(), each) for at, each in enumerate(inputs)
        }
        everything = (1 << len(inputs)) - 1
        for subset in range(1, everything + 1):
            # Of equal orders, that of the query.
            halves = sorted(_halves(subset), key=lambda one: not {one, subset ^ one} <= known)
            for part in halves:
                if part in best and subset ^ part in best:
                    self._consider(best, part, subset ^ part)
        return best[everything][1]

    def _consider(self, best: dict[int, tuple[Usage, Operator]], one: int, other: int) -> None:
        (usage, left), (usage_right, right) = best[one], best[other]
        join = Join(self._name(left, right), left, right)
        if not join.shared:
            return
        cost = self._costs.on_spark(join)
        together = usage.plus(usage_right).plus(Usage(cost, cost))
        known = best.get(one | other)
        if known is None or self._order(together) < self._order(known[0]):
            best[one | other] = together, join

    def _order(self, usage: Usage) -> tuple[bool, float]:
        return self._capacity.cost(usage).order

    def _name(self, left: Operator, right: Operator) -> str:
        below = frozenset(_names(left)) | frozenset(_names(right))
        if below in self._names:
            return self._names[below]
        if below not in self._made:
            self._made[below] = next(self._new)
        return self._made[below]


def _halves(subset: int) -> Iterator[int]:
    """Go through the parts of a set that have its lowest member: the other part has not."""
    lowest = subset & -subset
    rest = subset ^ lowest
    part = rest
    while part:
        part = (part - 1) & rest
        yield part | lowest


def _inputs(join: Operator) -> list[Operator]:
    """Return the inputs of joins that follow each other."""
    if not _is_join(join):
        return [join]
    return [each for below in inputs_of(join) for each in _inputs(below)]


def _masks(root: Operator) -> set[int]:
    """Return the inputs and joins of the query as sets of inputs."""
    found: set[int] = set()

    def cover(operator: Operator, first: int) -> int:
        """Return the first input behind those of an operator."""
        behind = first + 1
        if _is_join(operator):
            behind = first
            for below in inputs_of(operator):
                behind = cover(below, behind)
        found.add((1 << behind) - (1 << first))
        return behind

    cover(root, 0)
    return found


def _inputs_below(join: Operator) -> frozenset[str]:
    return frozenset(_names(join))


def _names(operator: Operator) -> list[str]:
    return [each.name for each in _inputs(operator)]


def _is_join(operator: Operator) -> bool:
    return isinstance(operator, Join)
