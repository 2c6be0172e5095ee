"""Pages that one system answers in one go: whole objects, and what is joined to them.

Such a page is a snapshot. The system must hold the class and all joined classes as a whole, and
must apply the whole filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mediator.model.query import Query
from mediator.query.semi_joins import RouteOf, SemiJoins
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, ShownJoin, Store, is_joining

__all__ = ["PAGE_VALUES", "Projection", "projection_of"]

PAGE_VALUES: Final = 20_000
"""Values asked for at once: of wide records fewer are, because a page is decoded in one go."""

_MOST_NAMES: Final = 1_000
"""Fields of one row; PostgreSQL has 1,664 columns at most."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields and joined objects that documents contain.

    Attributes:
        names: The fields of the object, sorted.
        joins: What is joined.
    """

    names: tuple[str, ...]
    joins: tuple[ShownJoin, ...]


def projection_of(
    query: Query,
    route: ClassRoute,
    store: Store,
    followed: Mapping[str, Fragment],
    bound: SemiJoins,
    route_of: RouteOf,
) -> Projection | None:
    """Return the projection of a query's documents; None if the store cannot answer them.

    Args:
        query: The query, of which the store does all the rest.
        route: Where its class lives.
        store: The store that finds the objects.
        followed: What it follows references to, by alias.
        bound: Its semi-joins.
        route_of: Finds joined classes.
    """
    alone = len(route.fragments) == 1 and route.anchor.ttl_s is None
    if not (query.as_documents and alone and is_joining(store)):
        return None
    joins = []
    for join in query.joins:
        *outer, reference = join.reference
        fragment, there = followed.get(join.alias), route_of(join.class_name)
        if fragment is None or there is None or len(there.fragments) > 1:
            return None
        alias, names = outer[0] if outer else "", _names(join.fields, fragment)
        filter_ = bound.filters.get(join.alias)
        joins.append(ShownJoin(join.alias, alias, reference, fragment, names, filter_))
    projection = Projection(_names(query.fields, route.anchor), tuple(joins))
    return projection if _is_small(projection, query.limit) else None


def _names(fields: tuple[str, ...] | None, fragment: Fragment) -> tuple[str, ...]:
    return tuple(sorted(fragment.fields)) if fields is None else fields


def _is_small(projection: Projection, limit: int) -> bool:
    width = len(projection.names) + sum(len(join.names) for join in projection.joins)
    return width <= _MOST_NAMES and width * limit <= PAGE_VALUES
