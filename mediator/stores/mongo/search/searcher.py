"""Runs searches: pages of the records that meet a condition."""

from __future__ import annotations

from asyncio import get_running_loop

from mediator.model.filters import (
    ID,
    Compare,
    Comparison,
    Filter,
    In,
    conjuncts,
)
from mediator.model.query import OrderBy
from mediator.schema.tree import MISSING
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.read.ordering import Position
from mediator.stores.mongo.read.reader import Reader, Selection, trimmed
from mediator.stores.mongo.search.conditions import Conditions
from mediator.stores.mongo.search.pushdown import sort_level
from mediator.stores.port import Record, SearchPage, SearchRequest, StoreRefused

__all__ = ["found"]


async def found(reader: Reader, find: SearchRequest, *, is_stand_in: bool) -> SearchPage:
    """Return a page of a search; raises `StoreRefused` if it is not one that was offered."""
    if find.limit < 1:
        return SearchPage([])
    sort = sort_level(find.fragment, find.order)
    if sort is None:
        raise StoreRefused("the order is not one that was offered")
    among = _selection(find, is_stand_in)
    after: Position | None = find.resume
    if after is None and find.after is not None:
        value = MISSING if sort.path == ID else find.after.values[0]
        after = (value, find.after.id)
    records = await _read(reader, find, sort, after, among)
    if len(records) < find.limit:
        return SearchPage(trimmed(records, find.fields))
    last = records[-1]
    position = (last.values.get(sort.path[0], MISSING), last.id)
    return SearchPage(trimmed(records, find.fields), position)


def _selection(find: SearchRequest, is_stand_in: bool) -> Selection:
    until_s = get_running_loop().time() + find.deadline_s
    if find.filter is None:
        return Selection(None, until_s)
    conditions = Conditions(layout_of(find.fragment), is_stand_in=is_stand_in)
    condition = conditions.of(find.filter)
    if condition is None:
        raise StoreRefused("the filter is not one that was offered")
    return Selection(condition, until_s, _ids(find.filter))


def _ids(filter_: Filter) -> tuple[str, ...] | None:
    """Return the ids that a filter leaves, if one of its conjuncts names them."""
    for part in conjuncts(filter_):
        match part:
            case Compare(Comparison.EQ, path, str() as id_) if path == ID:
                return (id_,)
            case In(path, values) if path == ID:
                return tuple([id_ for id_ in values if isinstance(id_, str)])
    return None


async def _read(
    reader: Reader, find: SearchRequest, sort: OrderBy, after: Position | None, among: Selection
) -> list[Record]:
    if sort.path == ID:
        seen = None if after is None else after[1]
        return await reader.scan(
            find.fragment, seen, find.limit, find.fields, descending=sort.descending, among=among
        )
    name = sort.path[0]
    return await reader.ordered(
        find.fragment,
        name,
        descending=sort.descending,
        limit=find.limit,
        after=after,
        # The value is needed to go on from there.
        fields=None if find.fields is None else tuple({*find.fields, name}),
        among=among,
    )
