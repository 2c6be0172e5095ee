"""The joins that the driver's system executes: conditions, and whole pages.

It applies conditions on joined objects as semi-joins. They are evaluated again on the joined
objects, so that the filter holds for the answer, whatever changed meanwhile: a semi-join may find
too much, but never too little. So a condition is bound only if it fails where nothing is joined,
and only if the referenced record decides whether the object exists, and never expires.

A page of documents, objects with those joined to them, is a snapshot. The system must hold the
class and all joined classes entirely, and must apply the whole filter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mediator.model.evaluate import holds
from mediator.model.filters import ID, And, Filter, Not, Or, paths_of
from mediator.model.query import Join, OrderBy, Query
from mediator.model.sizes import large_fields
from mediator.routing.model import ClassRoute
from mediator.schema.tree import MISSING
from mediator.stores.port import (
    Fragment,
    Joining,
    SemiJoin,
    ShownJoin,
    Store,
    is_joining,
)

__all__ = [
    "NO_SEMI_JOINS",
    "PAGE_VALUES",
    "Projection",
    "RouteOf",
    "SemiJoins",
    "follow_references",
    "projection_of",
    "semi_joins",
]

RouteOf: TypeAlias = Callable[[str], ClassRoute | None]
"""Returns the route of a class of the database, if known without I/O."""

_OWN: Final = ""
"""The alias of the queried class."""


@dataclass(frozen=True, slots=True)
class SemiJoins:
    """The semi-joins of a search, and their conditions on joined objects, by alias.

    They are `exact` if they exclude all objects that the filter on joined objects excludes.
    """

    joins: tuple[SemiJoin, ...]
    filters: Mapping[str, Filter]
    exact: bool


NO_SEMI_JOINS: Final = SemiJoins((), {}, exact=False)


def semi_joins(
    query: Query, conditions: Sequence[Filter], store: Store, fragments: Mapping[str, Fragment]
) -> SemiJoins:
    if not conditions or not is_joining(store):
        return NO_SEMI_JOINS
    bound: defaultdict[str, list[Filter]] = defaultdict(list)
    exact = True
    for condition in conditions:
        alias = _only_alias(condition)
        if alias in fragments and _fits(store, fragments[alias], inner := _inner(condition)):
            bound[alias].append(inner)
        else:
            exact = False
    filters = {alias: And(tuple(parts)) for alias, parts in bound.items()}
    return SemiJoins(_nest(query.joins, fragments, filters), filters, exact)


def follow_references(
    query: Query, driver: Fragment, store: Store, route_of: RouteOf
) -> Mapping[str, Fragment]:
    """Return the referenced fragments by alias, as far as the store follows references."""
    if not query.joins or not is_joining(store):
        return {}
    fragments = {_OWN: driver}
    for join in query.joins:
        *outer, reference = join.reference
        parent = fragments.get(outer[0] if outer else _OWN)
        route = route_of(join.class_name)
        if parent is None or reference not in parent.fields or route is None:
            continue
        if route.anchor.system == driver.system and route.anchor.ttl_s is None:
            fragments[join.alias] = route.anchor
    del fragments[_OWN]
    return fragments


def _nest(
    joins: Sequence[Join], fragments: Mapping[str, Fragment], filters: Mapping[str, Filter]
) -> tuple[SemiJoin, ...]:
    """Nest each semi-join in that of the object that holds its reference."""
    nested: defaultdict[str, list[SemiJoin]] = defaultdict(list)
    for join in reversed(joins):  # a join comes after those that its reference needs
        filter_, inner = filters.get(join.alias), tuple(nested[join.alias])
        if filter_ is not None or inner:
            *outer, reference = join.reference
            semi = SemiJoin(reference, fragments[join.alias], filter_, inner)
            nested[outer[0] if outer else _OWN].append(semi)
    return tuple(nested[_OWN])


def _only_alias(part: Filter) -> str:
    """Return the common alias of all paths of a condition; empty if they differ."""
    first, *more = {path[0] for path in paths_of(part)}
    return "" if more else first


def _inner(filter_: Filter) -> Filter:
    """Convert a condition on a joined object to one with paths of that object."""
    match filter_:
        case And(operands) | Or(operands):
            return replace(filter_, operands=tuple(map(_inner, operands)))
        case Not(operand):
            return Not(_inner(operand))
    return replace(filter_, path=filter_.path[1:])


def _fits(store: Joining, fragment: Fragment, inner: Filter) -> bool:
    """Whether the store applies a condition exactly, and it fails if nothing is joined."""
    has_fields = all(path == ID or path[0] in fragment.fields for path in paths_of(inner))
    if not has_fields or holds(inner, lambda _: MISSING):
        return False
    return store.pushdown(fragment, inner, ()).residual is None


PAGE_VALUES: Final = 20_000
"""Values requested at once: pages of wide records are shorter, as each is decoded in one step."""

_MAX_NAMES: Final = 1_000
"""Fields of one row; PostgreSQL has 1,664 columns at most."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields, sorted, and the joined objects that documents contain."""

    names: tuple[str, ...]
    joins: tuple[ShownJoin, ...]

    def shows(self, order: Sequence[OrderBy]) -> bool:
        """Whether a document has all fields of an order."""
        return {level.path[0] for level in order} <= {*ID, *self.names}

    def large(self, fragment: Fragment) -> tuple[str, ...]:
        """Return the members of a document that may be large: fields and joined objects."""
        joined = (j.alias for j in self.joins if large_fields(j.fragment.fields, j.names))
        return (*large_fields(fragment.fields, self.names), *joined)


def projection_of(
    query: Query,
    route: ClassRoute,
    store: Store,
    followed: Mapping[str, Fragment],
    bound: SemiJoins,
    route_of: RouteOf,
) -> Projection | None:
    """Return the projection of a query's documents; None if the store cannot answer them."""
    # The store builds the document, and knows only stored names.
    is_single = len(route.fragments) == 1 and not route.anchor.stored_names
    is_single = is_single and route.anchor.ttl_s is None
    lists = query.list_joins or query.reverse_joins
    if lists or not (query.as_documents and is_single and is_joining(store)):
        return None
    joins = []
    for join in query.joins:
        *outer, reference = join.reference
        fragment, joined_route = followed.get(join.alias), route_of(join.class_name)
        if (
            fragment is None
            or fragment.stored_names
            or joined_route is None
            or len(joined_route.fragments) > 1
        ):
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
    return width <= _MAX_NAMES and width * limit <= PAGE_VALUES
