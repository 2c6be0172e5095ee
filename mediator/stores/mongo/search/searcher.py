"""Searches: their plans (`pushdown`) and pages.

The server evaluates conjuncts with an exact condition, and orders by one level.
"""

from __future__ import annotations

from asyncio import get_running_loop
from typing import Final

from mediator.model.filters import (
    ID,
    Between,
    Compare,
    Comparison,
    Contains,
    Filter,
    In,
    Like,
    Or,
    Path,
    all_of,
    conjuncts,
)
from mediator.model.patterns import tokens
from mediator.model.query import OrderBy
from mediator.schema.tree import MISSING
from mediator.schema.types import SCALARS, FieldType
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.read.ordering import Position
from mediator.stores.mongo.read.reader import Reader, RecordSelection, project_fields
from mediator.stores.mongo.search.conditions import Conditions
from mediator.stores.port import (
    AccessPath,
    Fragment,
    Pushdown,
    Record,
    SearchPage,
    SearchRequest,
    StoreRefused,
)
from mediator.stores.port.search import only_level

__all__ = ["find_page", "pushdown", "selection_of", "selects"]

_SORTED: Final = SCALARS - {FieldType.BINARY}
"""Types whose stored form has the same order on the server as in the mediator."""

_RANKS: Final = list(AccessPath)
_SEEKING: Final = frozenset(Comparison) - {Comparison.NE}


async def find_page(reader: Reader, find: SearchRequest, *, is_stand_in: bool) -> SearchPage:
    """Return a page of a search; raises `StoreRefused` if `pushdown` did not plan it."""
    if find.limit < 1:
        return SearchPage([])
    sort = _sort_level(find.fragment, find.order)
    if sort is None:
        raise StoreRefused("the server cannot sort by this order")
    selection = selection_of(find.fragment, find.filter, find.deadline_s, is_stand_in=is_stand_in)
    after: Position | None = find.resume
    if after is None and find.after is not None:
        value = MISSING if sort.path == ID else find.after.values[0]
        after = (value, find.after.id)
    records = await _read(reader, find, sort, after, selection)
    if len(records) < find.limit:
        return SearchPage(project_fields(records, find.fields))
    last = records[-1]
    position = (last.values.get(sort.path[0], MISSING), last.id)
    return SearchPage(project_fields(records, find.fields), position)


def selects(fragment: Fragment, filter_: Filter | None, *, is_stand_in: bool) -> bool:
    """Whether the server can evaluate the whole filter."""
    conditions = Conditions(layout_of(fragment), is_stand_in=is_stand_in)
    return filter_ is None or conditions.of(filter_) is not None


def selection_of(
    fragment: Fragment, filter_: Filter | None, deadline_s: float, *, is_stand_in: bool
) -> RecordSelection:
    """Return the selection of a filter; raises `StoreRefused` if the server cannot evaluate it."""
    until_s = get_running_loop().time() + deadline_s
    if filter_ is None:
        return RecordSelection(None, until_s)
    condition = Conditions(layout_of(fragment), is_stand_in=is_stand_in).of(filter_)
    if condition is None:
        raise StoreRefused("the server cannot evaluate this filter exactly")
    return RecordSelection(condition, until_s, _ids(filter_))


def _ids(filter_: Filter) -> tuple[str, ...] | None:
    """Return the ids to which a filter restricts records, if one of its conjuncts names them."""
    for part in conjuncts(filter_):
        match part:
            case Compare(Comparison.EQ, path, str() as id_) if path == ID:
                return (id_,)
            case In(path, values) if path == ID:
                return tuple([id_ for id_ in values if isinstance(id_, str)])
    return None


async def _read(
    reader: Reader,
    find: SearchRequest,
    sort: OrderBy,
    after: Position | None,
    selection: RecordSelection,
) -> list[Record]:
    if sort.path == ID:
        after_id = None if after is None else after[1]
        return await reader.scan(
            find.fragment,
            after_id,
            find.limit,
            find.fields,
            descending=sort.descending,
            selection=selection,
        )
    name = sort.path[0]
    return await reader.ordered(
        find.fragment,
        name,
        descending=sort.descending,
        limit=find.limit,
        after=after,
        # The next page needs the value.
        fields=None if find.fields is None else tuple({*find.fields, name}),
        selection=selection,
    )


def pushdown(
    fragment: Fragment,
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    *,
    is_stand_in: bool,
) -> Pushdown:
    """Plan a search; see `port.Queryable`."""
    conditions = Conditions(layout_of(fragment), is_stand_in=is_stand_in)
    parts = [(part, conditions.of(part) is not None) for part in conjuncts(filter_)]
    pushed = [part for part, is_exact in parts if is_exact]
    residual = [part for part, is_exact in parts if not is_exact]
    sort = _sort_level(fragment, order)
    if pushed:
        access = min((_access(fragment, part) for part in pushed), key=_RANKS.index)
    elif residual or sort is None:
        access = AccessPath.CLIENT_SCAN
    else:
        by_index = sort.path == ID or (sort.path[0],) in fragment.ordered_indexes
        access = AccessPath.INDEX if by_index else AccessPath.SERVER_SCAN
    return Pushdown(all_of(pushed), all_of(residual), access, sort is not None)


def _sort_level(fragment: Fragment, order: tuple[OrderBy, ...]) -> OrderBy | None:
    """Return the only level of an order; None if it has several, or the server cannot sort it.

    With two levels the server would not distinguish null and missing on the first.
    """
    level = only_level(order)
    if level is None or level.path == ID:
        return level
    name, *keys = level.path
    return None if keys or fragment.fields[name].type not in _SORTED else level


def _access(fragment: Fragment, part: Filter) -> AccessPath:
    """Return the access path of a condition."""
    match part:
        case Or(parts) if parts:
            return max((_access(fragment, operand) for operand in parts), key=_RANKS.index)
        case Compare(Comparison.EQ, path) | In(path) if path == ID:
            return AccessPath.KEYS
        case Compare(comparison, path) if comparison in _SEEKING:
            indexed = _is_indexed(fragment, path)
        case Between(path) | In(path):
            indexed = _is_indexed(fragment, path)
        case Like(path, pattern):
            indexed = _is_indexed(fragment, path) and _begins_literally(pattern)
        case Contains(path) if path != ID:
            indexed = fragment.fields[path[0]].has_element_index
        case _:
            indexed = False
    return AccessPath.INDEX if indexed else AccessPath.SERVER_SCAN


def _begins_literally(pattern: str) -> bool:
    return isinstance(next(iter(tokens(pattern)), None), str)


def _is_indexed(fragment: Fragment, path: Path) -> bool:
    """Whether an index serves a path; a compound index serves its first field."""
    name, *keys = path
    if keys:
        return tuple(keys) in fragment.fields[name].indexed_keys
    return path == ID or name in fragment.leading
