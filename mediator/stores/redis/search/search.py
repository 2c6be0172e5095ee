"""Searches: their pages and counts, by the index of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from mediator.model.filters import Filter
from mediator.model.query import Aggregate, OrderBy, Position
from mediator.stores.port import (
    AccessPath,
    ComputedGroup,
    Read,
    SearchPage,
    SearchRequest,
    StoreRefused,
)
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.layout import IDS, Layout
from mediator.stores.redis.read import read_command, record_of_reply
from mediator.stores.redis.search.intervals import EVERYTHING, Cut, beyond, past, position
from mediator.stores.redis.search.listing import IndexListing
from mediator.stores.redis.search.plan import SearchPlan, choose
from redis_connection.commands import command

__all__ = ["can_count", "count", "find_page", "group_listing", "groups"]


def can_count(layout: Layout, filter_: Filter | None) -> bool:
    """Whether one index can count a filter's matches without reading them."""
    return choose(layout, filter_, ()).pushdown.residual is None


async def count(client: CommandClient, layout: Layout, filter_: Filter | None) -> int:
    """Count the matches of a filter; raises `StoreRefused` if `can_count` denies it."""
    if filter_ is None:
        commands = [command("ZCARD", f"{prefix}ids") for prefix in layout.prefixes]
        return sum(await client.execute(commands))
    choice = choose(layout, filter_, ())
    if choice.pushdown.residual is not None:
        raise StoreRefused("no index can count this filter")
    return await choice.listing(layout).count(client)


def group_listing(
    layout: Layout, filter_: Filter | None, aggregate: Aggregate
) -> IndexListing | None:
    """Return the listing that counts groups without reading objects, or None.

    The groups must be by one indexed field, and all conditions on that field.
    """
    if not aggregate.counts_objects:
        return None
    index = next((i for i in layout.ordered_indexes if [i.fields] == list(aggregate.group)), None)
    if index is None:
        return None
    choice = choose(layout, filter_, ())
    if filter_ is None:
        return IndexListing(layout, index, [EVERYTHING], False, ())
    is_served = choice.index == index and choice.pushdown.residual is None
    return choice.listing(layout) if is_served else None


async def groups(
    client: CommandClient,
    layout: Layout,
    filter_: Filter | None,
    aggregate: Aggregate,
    limit: int,
) -> list[ComputedGroup]:
    """Count groups; raises `StoreRefused` if `group_listing` has no listing for them."""
    listing = group_listing(layout, filter_, aggregate)
    if listing is None:
        raise StoreRefused("no index can compute this aggregate")
    counts = await listing.groups(client, limit)
    return [
        ((value,), dict.fromkeys(aggregate.compute, count))
        for value, count in islice(counts.items(), limit)
    ]


async def find_page(client: CommandClient, layout: Layout, find: SearchRequest) -> SearchPage:
    """Return a page of a search; raises `StoreRefused` if `pushdown` did not plan it."""
    choice = choose(layout, find.filter, find.order)
    pushdown, intervals, descending = choice.pushdown, choice.intervals, choice.descending
    unordered = not pushdown.ordered and (find.order or find.after is not None)
    if pushdown.residual is not None or unordered:
        raise StoreRefused("no index serves this search")
    if find.after is not None and intervals:
        intervals = beyond(
            intervals, _cut_after(choice, find.order, find.after), descending=descending
        )
    intervals = intervals[::-1] if descending else intervals
    if pushdown.access is AccessPath.KEYS:
        return await _by_keys(client, layout, find, [str(low.values[0]) for low, _ in intervals])
    listing = replace(
        choice.listing(layout), intervals=intervals, descending=descending, fields=find.fields
    )
    return SearchPage(*await listing.read(client, find.resume, find.limit))


def _cut_after(choice: SearchPlan, order: tuple[OrderBy, ...], after: Position) -> Cut:
    if choice.index is IDS:
        return past(after.id, descending=choice.descending)
    values = {level.path: value for level, value in zip(order, after.values, strict=False)}
    first, *others = choice.index.fields[len(choice.fixed) :]
    value = choice.value if choice.is_of_one_value else values[(first,)]
    return position([value, *(values[(name,)] for name in others)], after.id)


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
