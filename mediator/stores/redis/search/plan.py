"""Plans of searches: which conditions an index answers, and which index is read.

A sorted set serves any condition that leaves intervals of one field, or of the ids; a compound one
those that leave one value of its first fields, and intervals of the next; one of elements the
condition that an element is there. One is read. The server evaluates nothing else, so everything
else is left to the caller.
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

_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How a search is done.

    Attributes:
        index: The index that is read.
        intervals: What is read of it, in ascending order.
        descending: Whether they are read backwards.
        pushdown: What it means for the caller.
        fixed: The values that the index's first fields have; the intervals are of the next one.
    """

    index: Index
    intervals: Sequence[Interval]
    descending: bool
    pushdown: Pushdown
    fixed: tuple[Value | MissingType, ...] = ()

    @property
    def value(self) -> Value | MissingType:
        """The one value of what is read."""
        return value_of(self.intervals[0])

    @property
    def is_of_one_value(self) -> bool:
        return _is_one_value(self.intervals)

    def listing(self, layout: Layout) -> IndexListing:
        """Return all that is read, without a field."""
        return IndexListing(layout, self.index, self.intervals, False, (), self.fixed)


@dataclass(frozen=True, slots=True)
class _Use:
    """What an index leaves under some conditions.

    Attributes:
        used: The numbers of the conditions.
        fixed, intervals: As of a `SearchPlan`.
        free: The fields whose values its members are in the order of, before the ids.
    """

    index: Index
    used: frozenset[int]
    fixed: tuple[Value | MissingType, ...]
    intervals: Sequence[Interval]
    free: tuple[str, ...]

    def orders(self, order: _Order) -> bool:
        """Whether all that it leaves is in an order: what has one value orders nothing."""
        fields = self.index.fields
        bound = () if self.index.of_elements else fields[: len(fields) - len(self.free)]
        return order.is_of(self.free, bound)


class _Order(NamedTuple):
    """The levels of an order before the ids, and the direction of the ids."""

    levels: tuple[OrderBy, ...]
    descending: bool

    def is_of(self, names: tuple[str, ...], bound: tuple[str, ...] = ()) -> bool:
        """Whether it is the order of some fields, where others have one value each."""
        constant = {(name,) for name in bound}
        deciding = [level for level in self.levels if level.path not in constant]
        return deciding == [OrderBy((name,), self.descending) for name in names]


def _order_of(order: tuple[OrderBy, ...]) -> _Order:
    levels = tuple(takewhile(lambda level: level.path != ID, order))
    # Ids have a level of their own, or the direction of the last one.
    *_, last = (OrderBy(ID), *order[: len(levels) + 1])
    return _Order(levels, last.descending)


def _chosen(layout: Layout, filter_: Filter | None, order: tuple[OrderBy, ...]) -> SearchPlan:
    """Choose the index that leaves least, and of equals the one that has the order."""
    wanted, conditions = _order_of(order), conjuncts(filter_)
    uses = _uses(layout, conditions)
    if not uses:
        return _entire(layout, filter_, wanted)
    use = min(uses, key=lambda use: (*_spread(use), not use.orders(wanted)))
    pushdown = Pushdown(
        all_of([each for number, each in enumerate(conditions) if number in use.used]),
        all_of([each for number, each in enumerate(conditions) if number not in use.used]),
        AccessPath.KEYS if _are_keys(use) else AccessPath.INDEX,
        use.orders(wanted),
        use.index.fields or None,
    )
    return SearchPlan(use.index, use.intervals, wanted.descending, pushdown, use.fixed)


choose: Final = IdentityCache(_chosen, _KEPT, PARTS)
"""Plans the search of a layout, a filter and an order, which is asked for several times a query."""


def _uses(layout: Layout, conditions: Sequence[Filter]) -> list[_Use]:
    """Return how each index serves conditions, of those that serve any."""
    found: defaultdict[str, dict[int, Sequence[Interval]]] = defaultdict(dict)
    uses = []
    for number, condition in enumerate(conditions):
        match condition:
            case Contains((name,), value) if name in layout.element_indexes:
                index = layout.element_indexes[name]
                uses.append(_Use(index, frozenset({number}), (), [point(value)], ()))
                continue
        path = subject(condition)
        if path == ID or (path is not None and len(path) == 1 and path[0] in layout.in_order):
            intervals = selected(condition)
            if intervals is not None:
                found[path[0]][number] = intervals
    left = {name: reduce(common, some.values()) for name, some in found.items()}
    leading = (index for index in layout.ordered_indexes if index.fields[0] in left)
    uses += [_use(index, found, left) for index in leading]
    if ID[0] in found:
        ids = common(left[ID[0]], [VALUES])
        uses.append(_Use(IDS, frozenset(found[ID[0]]), (), ids, ()))
    return uses


def _use(
    index: Index,
    found: Mapping[str, Mapping[int, Sequence[Interval]]],
    left: Mapping[str, Sequence[Interval]],
) -> _Use:
    """Return what an index leaves, whose first field has conditions.

    Those on a further field leave less only where each field before it has one value.
    """
    names, depth = index.fields, 1
    while depth < len(names) and names[depth] in left and _is_one_value(left[names[depth - 1]]):
        depth += 1
    *before, last = names[:depth]
    used = frozenset(number for name in names[:depth] for number in found[name])
    fixed = tuple(value_of(left[name][0]) for name in before)
    free = names[depth:] if _is_one_value(left[last]) else names[depth - 1 :]
    return _Use(index, used, fixed, left[last], free)


def _entire(layout: Layout, filter_: Filter | None, order: _Order) -> SearchPlan:
    """Read the whole class, in its order if there is an index for it."""
    every = (IDS, *layout.ordered_indexes)
    index = next((index for index in every if order.is_of(index.fields)), None)
    fields = index.fields if index else ()
    # Without a condition nothing is read in vain, as long as nothing has to be sorted.
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
    """Rank how much of an index is left, least first; then by how many of its fields are fixed."""
    if _are_keys(use):
        return _KEYS, 0
    if use.fixed:
        return _ONE_VALUE, -len(use.fixed)
    if _are_points(use.intervals):
        is_one = len(use.intervals) <= 1 and not use.index.of_elements
        return _ONE_VALUE if is_one else _SOME_VALUES, 0
    return max(_BOUNDS[sum(bool(cut.values) for cut in each)] for each in use.intervals), 0
