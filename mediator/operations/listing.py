"""Listings: a class in the order of its ids, or of an indexed field."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

from mediator.errors import Invalid, Place
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import merge_records
from mediator.operations.model import Get, Outcome
from mediator.operations.plan import plan_read, resource_of
from mediator.placement.routing import ClassRoute
from mediator.planes import Page
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value
from mediator.stores.port import Fragment, Ordered, Read, Record, StoreError
from mediator.systems import unavailable

__all__ = ["Order", "Position", "list_class", "read_objects"]

Order: TypeAlias = tuple[str, Literal["asc", "desc"]]

Position: TypeAlias = tuple[Value | MissingType, str]
"""Where a listing stopped: the value of the order field (or MISSING), and the id."""


async def list_class(
    calls: StoreCalls,
    route: ClassRoute,
    resource: Get,
    look_again: Callable[[Sequence[Outcome | None]], Awaitable[Sequence[Outcome | None]]],
    *,
    order: Order | None,
    after: Position | None,
    limit: int,
) -> Page:
    """Read one page: the leading store finds the objects, the others add their parts.

    Args:
        calls: Sends store calls.
        route: Where the class lives.
        resource: What of each object is asked for; its id does not count.
        look_again: Tells parts that are being written from parts that are not there.
        order: The field to order by, and the direction; None for the order of ids.
        after: Where the page before stopped.
        limit: Objects at most.
    """
    lead = route.fragment_of[order[0]] if order else route.anchor
    outcomes: Sequence[Outcome | None] = ()
    more = True
    while more and not any(outcomes):
        # A page of objects that are all being deleted would leave no position to go on from.
        found = await _find(calls, route, order, after, limit + 1)
        page, more = found[:limit], len(found) > limit
        outcomes = await look_again(await _complete(calls, route, resource, lead, page))
        after = _position(page[-1], order) if page else None
    return Page(tuple(outcome for outcome in outcomes if outcome), more)


async def read_objects(
    calls: StoreCalls, route: ClassRoute, resource: Get, ids: Sequence[str]
) -> list[Outcome | None]:
    """Read many objects of a class with one round trip for each system."""
    plans = [plan_read(route, _named(resource, id_)) for id_ in ids]
    records = iter(await calls.read([call for plan in plans for call in plan]))
    return [
        merge_records(route, _named(resource, id_), [next(records) for _ in plan])
        for id_, plan in zip(ids, plans, strict=True)
    ]


async def _complete(
    calls: StoreCalls, route: ClassRoute, resource: Get, lead: Fragment, page: Sequence[Record]
) -> list[Outcome | None]:
    """Join what the leading store found with the parts that others hold, in one round trip."""
    parts = resource_of(route, resource.fields).parts
    others = [(fragment, fields) for fragment, fields in parts if fragment is not lead]
    reads = [Read(fragment, record.id, fields) for record in page for fragment, fields in others]
    rest = iter(await calls.read(reads) if reads else ())
    return [
        merge_records(
            route,
            _named(resource, record.id),
            [_only(record, fields) if f is lead else next(rest) for f, fields in parts],
        )
        for record in page
    ]


def _only(record: Record, fields: tuple[str, ...] | None) -> Record:
    if fields is None:
        return record
    values = {name: record.values[name] for name in fields if name in record.values}
    return Record(record.id, record.birth, record.versions, values)


def _named(resource: Get, id_: str) -> Get:
    return Get(resource.database, resource.class_name, id_, resource.fields)


async def _find(
    calls: StoreCalls, route: ClassRoute, order: Order | None, after: Position | None, limit: int
) -> list[Record]:
    if order is None:
        return await _scan(calls, route.anchor, after, limit)
    return await _ordered(calls, route.fragment_of[order[0]], order, after, limit)


def _position(record: Record, order: Order | None) -> Position:
    return (record.values.get(order[0], MISSING) if order else MISSING), record.id


async def _scan(
    calls: StoreCalls, fragment: Fragment, after: Position | None, limit: int
) -> list[Record]:
    store = calls.systems.get(fragment.system)
    beyond = after[1] if after else None
    try:
        return await store.guarded(lambda: store.store.scan(fragment, beyond, limit))
    except StoreError as error:
        raise unavailable(store, error, "read") from error


async def _ordered(
    calls: StoreCalls,
    fragment: Fragment,
    order: Order,
    after: Position | None,
    limit: int,
) -> list[Record]:
    name, direction = order
    guarded = calls.systems.get(fragment.system)
    store = guarded.store
    if not fragment.fields[name].index or not isinstance(store, Ordered):
        raise Invalid(
            f"The class cannot be ordered by {name}.",
            places=[Place("order", f'{name} needs "index": true on a store that keeps orders')],
        )
    ordered = store.ordered
    try:
        return await guarded.guarded(
            lambda: ordered(
                fragment, name, descending=direction == "desc", limit=limit, after=after
            )
        )
    except StoreError as error:
        raise unavailable(guarded, error, "read") from error
