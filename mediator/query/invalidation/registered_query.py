"""Registered queries: whether a write may have changed their results, and the cost of the test.

Objects are partly known, so filters follow Kleene's three-valued logic (as SQL's). The unit of cost
is about a microsecond. Costs are counted, never measured: a write gets the same result however
busy the machine is.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, TypeAlias

from mediator.model.effects import Effect, Image
from mediator.model.evaluate import compile_filter, key_of
from mediator.model.filters import ID, And, Contains, Filter, In, Like, Not, Or, Path, paths_of
from mediator.model.patterns import Wildcard, tokens
from mediator.model.query import Query

__all__ = [
    "MAX_MATCH_COST",
    "MatchBudget",
    "MatchCost",
    "RegisteredQuery",
    "ThreeValuedTest",
    "Truth",
    "compile_three_valued",
    "cost_of",
]


class Truth(IntEnum):
    """Whether something holds; in this order AND is the minimum and OR the maximum."""

    FALSE = 0
    UNKNOWN = 1
    TRUE = 2


ThreeValuedTest: TypeAlias = Callable[[Image], Truth]


def compile_three_valued(filter_: Filter | None) -> ThreeValuedTest:
    """Return the test whether a filter holds for an object; None holds for all existing ones."""
    holds = _holds(filter_) if filter_ is not None else lambda _: Truth.TRUE

    def test(image: Image) -> Truth:
        truth = holds(image)
        return truth if image.present else min(truth, Truth.UNKNOWN)

    return test


def _holds(filter_: Filter) -> ThreeValuedTest:
    on_known, on_partial = compile_filter(filter_), _on_partial(filter_)
    names = frozenset(path[0] for path in paths_of(filter_) if path != ID)

    def holds(image: Image) -> Truth:
        if names <= image.known:
            return Truth.TRUE if on_known(image.lookup) else Truth.FALSE
        return on_partial(image)

    return holds


def _on_partial(filter_: Filter) -> ThreeValuedTest:
    """Return the test of a filter for objects with unknown fields that it mentions."""
    match filter_:
        case And(operands):
            all_of = [_holds(operand) for operand in operands]
            return lambda image: min((test(image) for test in all_of), default=Truth.TRUE)
        case Or(operands):
            any_of = [_holds(operand) for operand in operands]
            return lambda image: max((test(image) for test in any_of), default=Truth.FALSE)
        case Not(operand):
            inner = _holds(operand)
            return lambda image: Truth(Truth.TRUE - inner(image))
        case _:
            return lambda _: Truth.UNKNOWN


MAX_MATCH_COST: Final = 10_000
"""Limit of units that matching one write costs."""

_PATTERN: Final = 50
"""Units of a pattern, which may have to be compiled first."""

_STEP: Final = 5
"""Units of a search: of a pattern, for 1,000 characters and each of its wildcards; of a list, for
each element."""


class MatchBudget:
    def __init__(self, max_units: int = MAX_MATCH_COST) -> None:
        self._remaining = max_units

    def spend(self, units: int) -> bool:
        """Spend units; False if too few remain."""
        self._remaining -= units
        return self._remaining >= 0


@dataclass(frozen=True, slots=True)
class MatchCost:
    """The cost of evaluating a filter.

    Attributes:
        fixed: Units for any object.
        searched: Paths whose values are searched, with the units for 1,000 characters.
    """

    fixed: int
    searched: tuple[tuple[Path, int], ...]

    def of(self, image: Image | None) -> int:
        if image is None:
            return 0
        units = self.fixed
        for path, units_per_1000 in self.searched:
            units += _length(image, path) * units_per_1000 // 1_000
        return units


def _length(image: Image, path: Path) -> int:
    value = image.lookup(path) if image.knows(path) else None
    if isinstance(value, list):
        return 1_000 * len(value)
    return len(value) if isinstance(value, str) else 0


def cost_of(filter_: Filter | None) -> MatchCost:
    match filter_:
        case None:
            return MatchCost(1, ())
        case And(operands) | Or(operands):
            costs = [cost_of(operand) for operand in operands]
            searched = tuple(search for cost in costs for search in cost.searched)
            return MatchCost(1 + sum(cost.fixed for cost in costs), searched)
        case Not(operand):
            return cost_of(operand)
        case Like(path, pattern):
            wildcards = sum(isinstance(token, Wildcard) for token in tokens(pattern))
            return MatchCost(_PATTERN, ((path, _STEP * (1 + wildcards)),))
        case Contains(path):
            return MatchCost(1, ((path, _STEP),))
        case In(_, values):
            return MatchCost(1 + len(values) // 100, ())
    return MatchCost(1, ())


@dataclass(frozen=True)
class RegisteredQuery:
    """A query without joins, with the tests that decide which writes change its result."""

    query: Query

    @cached_property
    def test(self) -> ThreeValuedTest:
        """Whether an object is found, at any position of the order."""
        return compile_three_valued(self.query.filter)

    @cached_property
    def _filter_cost(self) -> MatchCost:
        return cost_of(self.query.filter)

    def cost(self, effect: Effect) -> int:
        return self._filter_cost.of(effect.before) + self._filter_cost.of(effect.after)

    @cached_property
    def visible(self) -> AbstractSet[str] | None:
        """Fields that decide how the objects of the result look; None: all."""
        if self.query.aggregate is not None:
            return frozenset(path[0] for path in self.query.aggregate.paths)
        if self.query.fields is None:
            return None
        return {*self.query.fields, *(level.path[0] for level in self.query.order)}

    @cached_property
    def deciding(self) -> AbstractSet[str]:
        """Fields that decide which objects are found."""
        return frozenset(path[0] for path in paths_of(self.query.filter))

    @cached_property
    def fields(self) -> AbstractSet[str] | None:
        """Fields that matter; None: all."""
        return None if self.visible is None else self.visible | self.deciding

    def changes(self, effect: Effect) -> bool:
        """Whether a write may have changed the result.

        Writes to objects beyond the limit, or before the cursor, did not, but count as if they did.
        """
        touched = effect.touched
        if touched is not None and not _meet(touched, self.fields):
            return False
        is_visible = touched is None or _meet(touched, self.visible)
        before = Truth.FALSE if effect.before is None else self.test(effect.before)
        if is_visible and before is not Truth.FALSE:
            return True
        if touched is not None and self.deciding.isdisjoint(touched):
            return False  # it is found as before
        if self._looks_alike(effect.before, effect.after):
            after = before
        else:
            after = Truth.FALSE if effect.after is None else self.test(effect.after)
        if is_visible:
            return after is not Truth.FALSE
        return before is not after or before is Truth.UNKNOWN

    def _looks_alike(self, before: Image | None, after: Image | None) -> bool:
        """Whether no deciding field has changed, so that one test is enough."""
        if before is None or after is None or before.present is not after.present:
            return False
        names = self.deciding - {ID[0]}
        return all(
            name in before.known
            and name in after.known
            and _alike(before.values.get(name), after.values.get(name))
            for name in names
        )


def _alike(left: Any, right: Any) -> bool:
    return left is right or ((key := key_of(left)) is not None and key == key_of(right))


def _meet(touched: AbstractSet[str], fields: AbstractSet[str] | None) -> bool:
    return bool(touched) if fields is None else not fields.isdisjoint(touched)
