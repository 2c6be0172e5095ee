"""Phase one: the best order of joins, as if all operators were on Spark.

Dynamic programming over sets of inputs (System R; Selinger et al. 1979), without cross products.
The principle of optimality holds, since the cost of another join is the same above every plan of
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
    """Return the query with its joins in the best order; equal input sets keep their names."""
    names = {
        _inputs_below(operator): operator.name
        for operator in post_order(query.root)
        if _is_join(operator)
    }
    ordering = _Ordering(
        costs, capacity, names, {operator.name for operator in post_order(query.root)}
    )
    return replace(query, root=ordering.reorder(query.root))


class _Ordering:
    def __init__(
        self,
        costs: Costs,
        capacity: Capacity,
        names: Mapping[frozenset[str], str],
        used_names: set[str],
    ) -> None:
        self._costs, self._capacity, self._names = costs, capacity, names
        names_to_try = (f"join_{number}" for number in count(1))
        self._unused_names = (name for name in names_to_try if name not in used_names)
        self._new_names: dict[frozenset[str], str] = {}

    def reorder(self, root: Operator) -> Operator:
        if not _is_join(root):
            return with_inputs(root, tuple(self.reorder(input_) for input_ in inputs_of(root)))
        inputs = [self.reorder(input_) for input_ in _inputs(root)]
        query_masks = _masks(root)
        best: dict[int, tuple[Usage, Operator]] = {
            1 << number: (Usage(), input_) for number, input_ in enumerate(inputs)
        }
        all_inputs = (1 << len(inputs)) - 1
        for subset in range(1, all_inputs + 1):
            # Among equal orders, prefer the query's.
            halves = sorted(_halves(subset), key=lambda one: not {one, subset ^ one} <= query_masks)
            for half in halves:
                if half in best and subset ^ half in best:
                    self._consider(best, half, subset ^ half)
        return best[all_inputs][1]

    def _consider(self, best: dict[int, tuple[Usage, Operator]], one: int, other: int) -> None:
        (usage, left), (usage_right, right) = best[one], best[other]
        join = Join(self._name(left, right), left, right)
        if not join.shared:
            return
        cost = self._costs.on_spark(join)
        combined = usage.plus(usage_right).plus(Usage(cost, cost))
        former = best.get(one | other)
        if former is None or self._order(combined) < self._order(former[0]):
            best[one | other] = combined, join

    def _order(self, usage: Usage) -> tuple[bool, float]:
        return self._capacity.cost(usage).order

    def _name(self, left: Operator, right: Operator) -> str:
        below = frozenset(_names(left)) | frozenset(_names(right))
        if below in self._names:
            return self._names[below]
        if below not in self._new_names:
            self._new_names[below] = next(self._unused_names)
        return self._new_names[below]


def _halves(subset: int) -> Iterator[int]:
    """Yield the proper subsets of a set that contain its lowest member."""
    lowest = subset & -subset
    others = subset ^ lowest
    part = others
    while part:
        part = (part - 1) & others
        yield part | lowest


def _inputs(join: Operator) -> list[Operator]:
    """Return the inputs of consecutive joins."""
    if not _is_join(join):
        return [join]
    return [input_ for below in inputs_of(join) for input_ in _inputs(below)]


def _masks(root: Operator) -> set[int]:
    """Return the inputs and joins of the query as sets of inputs."""
    masks: set[int] = set()

    def cover(operator: Operator, first: int) -> int:
        """Return the number of the first input after an operator's inputs."""
        end = first + 1
        if _is_join(operator):
            end = first
            for below in inputs_of(operator):
                end = cover(below, end)
        masks.add((1 << end) - (1 << first))
        return end

    cover(root, 0)
    return masks


def _inputs_below(join: Operator) -> frozenset[str]:
    return frozenset(_names(join))


def _names(operator: Operator) -> list[str]:
    return [input_.name for input_ in _inputs(operator)]


def _is_join(operator: Operator) -> bool:
    return isinstance(operator, Join)
