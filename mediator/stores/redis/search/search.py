"""Searches: which conditions an index answers, and which index is read.

A sorted set serves any condition that leaves intervals of one field, or of the ids; of several
fields, one. The server evaluates nothing else, so everything else is left to the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from typing import Final

from mediator.model.filters import ID, Filter, Path, all_of, conjuncts
from mediator.model.query import Aggregate, Computation, Function, OrderBy, Position
from mediator.stores.port import (
    AccessPath,
    ComputedGroup,
    Pushdown,
    Read,
    SearchPage,
    SearchRequest,
    StoreRefused,
    only_level,
)
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.layout import Layout
from mediator.stores.redis.read import read_command, record_of_reply
from mediator.stores.redis.search.intervals import (
    EVERYTHING,
    VALUES,
    Cut,
    Interval,
    beyond,
    common,
    is_point,
    past,
    position,
    selected,
    subject,
    within,
)
from mediator.stores.redis.search.listing import IndexListing

__all__ = ["SearchPlan", "choose", "count", "counts", "found", "groups", "groups_counted"]


_OBJECTS: Final = Computation(Function.COUNT)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How a search is done.

    Attributes:
        index: The indexed field; None: the ids.
        intervals: What is read of the index, in ascending order.
        descending: Whether they are read backwards.
        pushdown: What it means for the caller.
    """

    index: str | None
    intervals: Sequence[Interval]
    descending: bool
    pushdown: Pushdown


def choose(layout: Layout, filter_: Filter | None, order: tuple[OrderBy, ...]) -> SearchPlan:
    """Choose the index that leaves least, and of equals the one that has the order."""
    level = only_level(order)
    order_path, descending = (level.path, level.descending) if level else (None, False)
    conditions = conjuncts(filter_)
    usable = _usable(layout, conditions)
    if not usable:
        return _entire(layout, filter_, order_path, descending)
    path = min(usable, key=lambda path: (_spread(path, usable[path][1]), path != order_path))
    used, intervals = usable[path]
    pushdown = Pushdown(
        all_of([condition for number, condition in enumerate(conditions) if number in used]),
        all_of([condition for number, condition in enumerate(conditions) if number not in used]),
        AccessPath.KEYS if _are_keys(path, intervals) else AccessPath.INDEX,
        # Members of one value are in the order of their ids.
        order_path == path or (order_path == ID and _are_points(intervals) and len(intervals) <= 1),
    )
    return SearchPlan(_index(path), intervals, descending, pushdown)


def _usable(
    layout: Layout, conditions: Sequence[Filter]
) -> dict[Path, tuple[frozenset[int], Sequence[Interval]]]:
    """Return by path the numbers of the conditions on an index, and the intervals they leave."""
    usable: defaultdict[Path, dict[int, Sequence[Interval]]] = defaultdict(dict)
    for number, condition in enumerate(conditions):
        path = subject(condition)
        if path is not None and _has_index(layout, path):
            intervals = selected(condition)
            if intervals is not None:
                usable[path][number] = intervals
    return {
        path: (
            frozenset(some),
            reduce(common, some.values(), [VALUES if path == ID else EVERYTHING]),
        )
        for path, some in usable.items()
    }


def _entire(
    layout: Layout, filter_: Filter | None, order_path: Path | None, descending: bool
) -> SearchPlan:
    """Read the whole class, in its order if there is an index for it."""
    ordered = order_path is not None and _has_index(layout, order_path)
    # Without a condition nothing is read in vain, as long as nothing has to be sorted.
    access = AccessPath.INDEX if ordered and filter_ is None else AccessPath.CLIENT_SCAN
    index = _index(order_path) if ordered and order_path else None
    pushdown = Pushdown(None, filter_, access, ordered)
    return SearchPlan(index, [EVERYTHING], descending and ordered, pushdown)


def _has_index(layout: Layout, path: Path) -> bool:
    return path == ID or (len(path) == 1 and path[0] in layout.indexed)


def _index(path: Path) -> str | None:
    return None if path == ID else path[0]


def _are_points(intervals: Sequence[Interval]) -> bool:
    return all(map(is_point, intervals))


def _are_keys(path: Path, intervals: Sequence[Interval]) -> bool:
    return path == ID and _are_points(intervals)


_KEYS, _ONE_VALUE, _SOME_VALUES, _TWO_SIDED, _ONE_SIDED, _PRESENT = range(6)
_BOUNDS: Final = (_PRESENT, _ONE_SIDED, _TWO_SIDED)


def _spread(path: Path, intervals: Sequence[Interval]) -> int:
    """Rank how much of an index is left, least first."""
    if _are_keys(path, intervals):
        return _KEYS
    if _are_points(intervals):
        return _ONE_VALUE if len(intervals) <= 1 else _SOME_VALUES
    return max(_BOUNDS[sum(len(cut.key) > 1 for cut in interval)] for interval in intervals)


def counts(layout: Layout, filter_: Filter | None) -> bool:
    """Whether what a filter finds is counted by one index, without reading it."""
    return choose(layout, filter_, ()).pushdown.residual is None


async def count(client: CommandClient, layout: Layout, filter_: Filter | None) -> int:
    """Count what a filter finds; raises `StoreRefused` if it is not one that `counts` offered."""
    choice = choose(layout, filter_, ())
    if choice.pushdown.residual is not None:
        raise StoreRefused("the filter is not one that was offered")
    return await IndexListing(layout, choice.index, choice.intervals, False, ()).count(client)


def groups_counted(layout: Layout, filter_: Filter | None, aggregate: Aggregate) -> str | None:
    """Return the index by which groups are counted, without reading objects; None: by none.

    They are those of one indexed field, and no condition is about any other.
    """
    if len(aggregate.group) != 1 or not _has_index(layout, aggregate.group[0]):
        return None
    [path] = aggregate.group
    counted = all(each == _OBJECTS for each in aggregate.compute.values())
    if path == ID or not counted:
        return None
    choice = choose(layout, filter_, ())
    if filter_ is None:
        return path[0]
    fits = choice.index == path[0] and choice.pushdown.residual is None
    return path[0] if fits else None


async def groups(
    client: CommandClient,
    layout: Layout,
    filter_: Filter | None,
    aggregate: Aggregate,
    limit: int,
) -> list[ComputedGroup]:
    """Count groups; raises `StoreRefused` if they are not those that `groups_counted` offered."""
    index = groups_counted(layout, filter_, aggregate)
    if index is None:
        raise StoreRefused("the aggregate is not one that was offered")
    intervals = [EVERYTHING] if filter_ is None else choose(layout, filter_, ()).intervals
    counted = await IndexListing(layout, index, intervals, False, ()).groups(client, limit)
    return [
        ((value,), dict.fromkeys(aggregate.compute, count))
        for value, count in islice(counted.items(), limit)
    ]


async def found(client: CommandClient, layout: Layout, find: SearchRequest) -> SearchPage:
    """Return a page of a search; raises `StoreRefused` if it is not what `pushdown` offered."""
    choice = choose(layout, find.filter, find.order)
    offered, intervals, descending = choice.pushdown, choice.intervals, choice.descending
    unordered = not offered.ordered and (find.order or find.after is not None)
    if offered.residual is not None or unordered:
        raise StoreRefused("the search is not one that was offered")
    if find.after is not None and intervals:
        intervals = beyond(intervals, _seen(choice, find.order, find.after), descending=descending)
    intervals = intervals[::-1] if descending else intervals
    if offered.access is AccessPath.KEYS:
        return await _by_keys(client, layout, find, [str(low.value) for low, _ in intervals])
    listing = IndexListing(layout, choice.index, intervals, descending, find.fields)
    return SearchPage(*await listing.read(client, find.resume, find.limit))


def _seen(choice: SearchPlan, order: tuple[OrderBy, ...], after: Position) -> Cut:
    if choice.index is None:
        return past(after.id, descending=choice.descending)
    level = only_level(order)
    if level is not None and level.path == ID:
        return within(choice.intervals[0], after.id)
    return position(after.values[0], after.id)


async def _by_keys(
    client: CommandClient, layout: Layout, find: SearchRequest, ids: Sequence[str]
) -> SearchPage:
    start = find.resume or 0
    stop = start + find.limit
    calls = [Read(find.fragment, id_, find.fields) for id_ in ids[start:stop]]
    commands = [read_command(layout, call) for call in calls]
    replies = await client.execute(commands) if commands else []
    records = map(partial(record_of_reply, layout), calls, replies)
    present = [record for record in records if record is not None]
    return SearchPage(present, stop if stop < len(ids) else None)
