"""Plans searches: which index is read, and which conditions it serves.

An index serves any condition that selects intervals of one field, or of ids; a compound index
serves conditions that fix its first fields, and intervals of the next; an element index serves the
condition that an element is present. One index is read. The server evaluates nothing else, so the
other conditions are left to the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import Final, NamedTuple

from mediator.base.bounded_cache import IdentityCache
from mediator.model.filters import ID, Contains, Filter, all_of, conjuncts
from mediator.model.query import PARTS, OrderBy
from mediator.schema.tree import MissingType
from mediator.schema.types import Value
from mediator.stores.port import AccessPath, Pushdown
from mediator.stores.redis.layout import IDS, Index, Layout
from mediator.stores.redis.search.intervals import (
    EVERYTHING,
    VALUES,
    Interval,
    common,
    is_point,
    point,
    selected,
    subject,
    value_of,
)
from mediator.stores.redis.search.listing import IndexListing

__all__ = ["SearchPlan", "choose"]

_MAX_PLANS: Final = 256


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The plan of a search.

    Attributes:
        index: The index that is read.
        intervals: The intervals that are read, in ascending order.
        descending: Whether they are read backwards.
        pushdown: The plan as the caller sees it.
        fixed: The values of the index's first fields; the intervals are of the next field.
    """

    index: Index
    intervals: Sequence[Interval]
    descending: bool
    pushdown: Pushdown
    fixed: tuple[Value | MissingType, ...] = ()

    @property
    def value(self) -> Value | MissingType:
        """The value of all members that are read."""
        return value_of(self.intervals[0])

    @property
    def is_of_one_value(self) -> bool:
        return _is_one_value(self.intervals)

    def listing(self, layout: Layout) -> IndexListing:
        """Return the listing of the plan, without fields."""
        return IndexListing(layout, self.index, self.intervals, False, (), self.fixed)


@dataclass(frozen=True, slots=True)
class _Use:
    """The part of an index that conditions select.

    Attributes:
        conditions: The numbers of the conditions.
        fixed, intervals: As in `SearchPlan`.
        free: The fields that order its members, before the ids.
    """

    index: Index
    conditions: frozenset[int]
    fixed: tuple[Value | MissingType, ...]
    intervals: Sequence[Interval]
    free: tuple[str, ...]

    def orders(self, order: _Order) -> bool:
        """Whether the selected members have an order; fixed fields do not matter."""
        fields = self.index.fields
        bound = () if self.index.of_elements else fields[: len(fields) - len(self.free)]
        return order.is_of(self.free, bound)


class _Order(NamedTuple):
    """The levels of an order before the ids, and the direction of the ids."""

    levels: tuple[OrderBy, ...]
    descending: bool

    def is_of(self, names: tuple[str, ...], bound: tuple[str, ...] = ()) -> bool:
        """Whether it is the order of some fields, given that the `bound` fields are constant."""
        constant = {(name,) for name in bound}
        deciding = [level for level in self.levels if level.path not in constant]
        return deciding == [OrderBy((name,), self.descending) for name in names]


def _order_of(order: tuple[OrderBy, ...]) -> _Order:
    levels = tuple(takewhile(lambda level: level.path != ID, order))
    # Ids have their own level, or the direction of the last level.
    *_, last = (OrderBy(ID), *order[: len(levels) + 1])
    return _Order(levels, last.descending)


def _plan(layout: Layout, filter_: Filter | None, order: tuple[OrderBy, ...]) -> SearchPlan:
    """Choose the most selective index, and among equals one that has the order."""
    required, conditions = _order_of(order), conjuncts(filter_)
    uses = _uses(layout, conditions)
    if not uses:
        return _entire(layout, filter_, required)
    use = min(uses, key=lambda use: (*_spread(use), not use.orders(required)))
    pushdown = Pushdown(
        all_of(
            [condition for number, condition in enumerate(conditions) if number in use.conditions]
        ),
        all_of(
            [
                condition
                for number, condition in enumerate(conditions)
                if number not in use.conditions
            ]
        ),
        AccessPath.KEYS if _are_keys(use) else AccessPath.INDEX,
        use.orders(required),
        use.index.fields or None,
    )
    return SearchPlan(use.index, use.intervals, required.descending, pushdown, use.fixed)


choose: Final = IdentityCache(_plan, _MAX_PLANS, PARTS)
"""Plans the search of a layout, a filter and an order; each query needs it several times."""


def _uses(layout: Layout, conditions: Sequence[Filter]) -> list[_Use]:
    """Return the uses of all indexes that serve conditions."""
    selections: defaultdict[str, dict[int, Sequence[Interval]]] = defaultdict(dict)
    uses = []
    for number, condition in enumerate(conditions):
        match condition:
            case Contains((name,), value) if name in layout.element_indexes:
                index = layout.element_indexes[name]
                uses.append(_Use(index, frozenset({number}), (), [point(value)], ()))
                continue
        path = subject(condition)
        if path == ID or (path is not None and len(path) == 1 and path[0] in layout.ordered_fields):
            intervals = selected(condition)
            if intervals is not None:
                selections[path[0]][number] = intervals
    narrowed = {name: reduce(common, intervals.values()) for name, intervals in selections.items()}
    leading = (index for index in layout.ordered_indexes if index.fields[0] in narrowed)
    uses += [_use(index, selections, narrowed) for index in leading]
    if ID[0] in selections:
        ids = common(narrowed[ID[0]], [VALUES])
        uses.append(_Use(IDS, frozenset(selections[ID[0]]), (), ids, ()))
    return uses


def _use(
    index: Index,
    selections: Mapping[str, Mapping[int, Sequence[Interval]]],
    narrowed: Mapping[str, Sequence[Interval]],
) -> _Use:
    """Return the use of an index whose first field has conditions.

    Conditions on a further field help only if each field before it has one value.
    """
    names, depth = index.fields, 1
    while (
        depth < len(names)
        and names[depth] in narrowed
        and _is_one_value(narrowed[names[depth - 1]])
    ):
        depth += 1
    *fixed_names, last = names[:depth]
    conditions = frozenset(number for name in names[:depth] for number in selections[name])
    fixed = tuple(value_of(narrowed[name][0]) for name in fixed_names)
    free = names[depth:] if _is_one_value(narrowed[last]) else names[depth - 1 :]
    return _Use(index, conditions, fixed, narrowed[last], free)


def _entire(layout: Layout, filter_: Filter | None, order: _Order) -> SearchPlan:
    """Read the whole class, in the required order if an index has it."""
    indexes = (IDS, *layout.ordered_indexes)
    index = next((index for index in indexes if order.is_of(index.fields)), None)
    fields = index.fields if index else ()
    # Without a condition no record is read needlessly, unless records must be sorted.
    access = AccessPath.INDEX if index and filter_ is None else AccessPath.CLIENT_SCAN
    pushdown = Pushdown(None, filter_, access, index is not None, fields or None)
    return SearchPlan(index or IDS, [EVERYTHING], order.descending and index is not None, pushdown)


def _is_one_value(intervals: Sequence[Interval]) -> bool:
    return len(intervals) == 1 and is_point(intervals[0])


def _are_points(intervals: Sequence[Interval]) -> bool:
    return all(map(is_point, intervals))


def _are_keys(use: _Use) -> bool:
    return use.index is IDS and _are_points(use.intervals)


_KEYS, _ONE_VALUE, _SOME_VALUES, _TWO_SIDED, _ONE_SIDED, _PRESENT = range(6)
_BOUNDS: Final = (_PRESENT, _ONE_SIDED, _TWO_SIDED)


def _spread(use: _Use) -> tuple[int, int]:
    """Rank how much of an index is selected, least first; then by the number of fixed fields."""
    if _are_keys(use):
        return _KEYS, 0
    if use.fixed:
        return _ONE_VALUE, -len(use.fixed)
    if _are_points(use.intervals):
        is_one_value = len(use.intervals) <= 1 and not use.index.of_elements
        return _ONE_VALUE if is_one_value else _SOME_VALUES, 0
    return max(_BOUNDS[sum(bool(cut.values) for cut in interval)] for interval in use.intervals), 0
