"""Searches: which conditions an index answers, and which index is read.

A sorted set serves any condition that leaves intervals of one field, or of the ids; of several
fields, one. The server evaluates nothing else, so everything else is left to the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from mediator.model.filters import ID, Filter, Path, all_of, conjuncts
from mediator.model.query import OrderBy, Position
from mediator.stores.port import (
    Access,
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
from mediator.stores.redis.search.listing import Listing

__all__ = ["Choice", "Search", "choose"]


@dataclass(frozen=True, slots=True)
class Choice:
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


def choose(layout: Layout, filter_: Filter | None, order: tuple[OrderBy, ...]) -> Choice:
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
        Access.KEYS if _are_keys(path, intervals) else Access.INDEX,
        order_path == path or (order_path == ID and _are_points(intervals) and len(intervals) <= 1),
    )
    return Choice(_index(path), intervals, descending, pushdown)


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
) -> Choice:
    """Read the whole class, in its order if there is an index for it."""
    ordered = order_path is not None and _has_index(layout, order_path)
    # Without a condition nothing is read in vain, as long as nothing has to be sorted.
    access = Access.INDEX if ordered and filter_ is None else Access.CLIENT_SCAN
    index = _index(order_path) if ordered and order_path else None
    pushdown = Pushdown(None, filter_, access, ordered)
    return Choice(index, [EVERYTHING], descending and ordered, pushdown)


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


class Search:
    """One page of a search.

    Args:
        layout: The fragment's.
        find: What is looked for.

    Raises:
        StoreRefused: It is not what `pushdown` offered.
    """

    def __init__(self, layout: Layout, find: SearchRequest) -> None:
        self._layout = layout
        self._find = find
        self._choice = choose(layout, find.filter, find.order)
        offered = self._choice.pushdown
        unordered = not offered.ordered and (find.order or find.after is not None)
        if offered.residual is not None or unordered:
            raise StoreRefused("the search is not one that was offered")

    async def page(self, client: CommandClient) -> SearchPage:
        """Read the page."""
        intervals = self._intervals()
        if self._choice.pushdown.access is Access.KEYS:
            return await self._by_keys(client, [str(low.value) for low, _ in intervals])
        choice = self._choice
        listing = Listing(
            self._layout, choice.index, intervals, choice.descending, self._find.fields
        )
        return SearchPage(*await listing.read(client, self._find.resume, self._find.limit))

    def _intervals(self) -> Sequence[Interval]:
        """Return the intervals beyond the requested position, in the order of reading."""
        intervals, descending = self._choice.intervals, self._choice.descending
        if self._find.after is not None and intervals:
            seen = self._seen(self._find.after)
            intervals = beyond(intervals, seen, descending=descending)
        return intervals[::-1] if descending else intervals

    def _seen(self, after: Position) -> Cut:
        choice = self._choice
        if choice.index is None:
            return past(after.id, descending=choice.descending)
        level = only_level(self._find.order)
        if level is not None and level.path == ID:
            return within(choice.intervals[0], after.id)
        return position(after.values[0], after.id)

    async def _by_keys(self, client: CommandClient, ids: Sequence[str]) -> SearchPage:
        start = self._find.resume or 0
        stop = start + self._find.limit
        calls = [Read(self._find.fragment, id_, self._find.fields) for id_ in ids[start:stop]]
        commands = [read_command(self._layout, call) for call in calls]
        replies = await client.execute(commands) if commands else []
        records = map(partial(record_of_reply, self._layout), calls, replies)
        present = [record for record in records if record is not None]
        return SearchPage(present, stop if stop < len(ids) else None)
