"""Pages that one system writes as JSON: of objects, and of what is joined to them.

That saves decoding every value, and encoding it again. All of an object, and of what is joined,
must be there; and what the query leaves out must be left out there, so that nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mediator.placement.routing import ClassRoute
from mediator.query.model import Query
from mediator.query.semi_joins import RouteOf, SemiJoins
from mediator.stores.port import Fragment, Rendering, ShownJoin, Store

__all__ = ["Shown", "shown"]


@dataclass(frozen=True, slots=True)
class Shown:
    """What documents show.

    Attributes:
        names: The fields of the object, sorted.
        joins: What is joined.
    """

    names: tuple[str, ...]
    joins: tuple[ShownJoin, ...]


def shown(
    query: Query,
    route: ClassRoute,
    store: Store,
    followed: Mapping[str, Fragment],
    bound: SemiJoins,
    route_of: RouteOf,
) -> Shown | None:
    """Return what the documents of a query show; None if the store cannot write them.

    Args:
        query: The query, of which the store does all the rest.
        route: Where its class lives.
        store: The store that finds the objects.
        followed: What it follows references to, by alias.
        bound: Its semi-joins.
        route_of: Finds joined classes.
    """
    if not query.as_json or not isinstance(store, Rendering) or len(route.fragments) > 1:
        return None
    names = _names(query.fields, route.anchor)
    if route.anchor.ttl_s is not None or not store.renders(route.anchor, names):
        return None
    joins = []
    for join in query.joins:
        *outer, reference = join.reference
        fragment, there = followed.get(join.alias), route_of(join.class_name)
        if fragment is None or there is None or there.fragments != (fragment,):
            return None
        wanted = _names(join.fields, fragment)
        if not store.renders(fragment, wanted):
            return None
        filter_ = bound.filters.get(join.alias)
        alias = outer[0] if outer else ""
        joins.append(ShownJoin(join.alias, alias, reference, fragment, wanted, filter_))
    return Shown(names, tuple(joins))


def _names(fields: tuple[str, ...] | None, fragment: Fragment) -> tuple[str, ...]:
    return tuple(sorted(fragment.fields)) if fields is None else fields
