"""Planning a query: the driver, what is pushed down to it, and the residual filter.

A filter is split into conjuncts. One system finds the objects (the driver): it is offered the
conjuncts on fields that it holds, and applies those that it can apply exactly. The other systems
add their fragments, and the residual filter is evaluated on the merged objects. So the answer does
not depend on where the data is; only the work does.

Every object has a fragment on the system of its anchor. Another system may drive only if a
conjunct pushed down to it fails for objects without a fragment there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from mediator.base.bounded_cache import BoundedCache, IdentityCache
from mediator.model.evaluate import holds
from mediator.model.filters import (
    ID,
    Between,
    Compare,
    Comparison,
    Exists,
    Filter,
    In,
    Not,
    Path,
    all_of,
    conjuncts,
    paths_of,
)
from mediator.model.query import PARTS, CountMode, Position, Query
from mediator.query.scans import needs_scan
from mediator.query.semi_joins import (
    NO_SEMI_JOINS,
    Projection,
    RouteOf,
    SemiJoins,
    follow_references,
    projection_of,
    semi_joins,
)
from mediator.query.totals import total_query
from mediator.routing.fragments import reaching
from mediator.routing.model import ClassRoute
from mediator.schema.tree import MISSING
from mediator.stores.port import (
    AccessPath,
    Aggregating,
    Estimating,
    Fragment,
    Pushdown,
    Store,
    is_queryable,
)

__all__ = ["UNBOUND", "QueryPlan", "StoreOf", "make_plan", "spread_of"]

StoreOf = Callable[[str], Store]
"""Finds the store of a system; raises `Unavailable` if it is not connected."""

CACHED_PLANS: Final = 256

_RANKS: Final = {access: rank for rank, access in enumerate(AccessPath)}


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a query is executed.

    Attributes:
        route: The route of the class, or of the view if it answers.
        driver: The fragment whose system finds the objects.
        pushdown: The work pushed down to that system.
        own_filter: The filter on the class's own fields, if any.
        residual: Its part that is evaluated on the merged objects, if any.
        joined_filter: The filter on joined objects, if any.
        ordered: Whether the objects come in the requested order.
        aggregated: Whether the system of the driver computes the aggregate.
        estimated: Whether it estimates the total, which the aggregate would count.
        fields: The fields that are read, sorted; None: all.
        semi_joins: The conditions on joined objects that the driver's system applies beforehand.
        driver_fields: The fields that the driver reads; None: all that it holds.
        projection: The documents that the driver's system answers, if requested; None: it sends
            records.
        tail: Executed if too few objects are found: it finds the objects without a value to order
            by, which this plan leaves out and which come last. None: none are left out.
        total: The plan of the total, if requested.
    """

    query: Query
    route: ClassRoute
    driver: Fragment
    pushdown: Pushdown
    own_filter: Filter | None
    residual: Filter | None
    joined_filter: Filter | None
    ordered: bool
    aggregated: bool
    fields: tuple[str, ...] | None
    semi_joins: SemiJoins = NO_SEMI_JOINS
    driver_fields: tuple[str, ...] | None = None
    projection: Projection | None = None
    tail: QueryPlan | None = None
    estimated: bool = False
    total: QueryPlan | None = None

    @property
    def limited(self) -> bool:
        """Whether the limit is pushed down: only if no filter remains."""
        is_complete = self.residual is None and (
            self.joined_filter is None or self.semi_joins.exact
        )
        return self.ordered and is_complete and self.query.aggregate is None

    @property
    def access(self) -> AccessPath:
        """How the objects are found; sending all of them is a scan."""
        if self.pushdown.pushed is None and self.semi_joins.joins:
            return AccessPath.SERVER_SCAN
        is_pushed = self.limited or self.aggregated or self.estimated
        is_scan = self.pushdown.pushed is None and not is_pushed
        return AccessPath.CLIENT_SCAN if is_scan else self.pushdown.access


class _Layout(NamedTuple):
    """The route of a query's class, and access to the routes and stores that it needs."""

    route: ClassRoute
    store_of: StoreOf
    route_of: RouteOf


def make_plan(query: Query, route: ClassRoute, store_of: StoreOf, route_of: RouteOf) -> QueryPlan:
    """Plan a query.

    Raises:
        NeedsScan: All objects would have to be sent, and that is not allowed.
        Unavailable: A system of the class is not connected.
    """
    layout: list[Any] = [store_of(fragment.system) for fragment in route.fragments]
    layout += [route_of(join.class_name) for join in query.joins]
    if _has_constants(query):
        return _cached(query, route, *layout)
    # Equal queries without constants share a plan; equal constants may differ in type.
    plan = _cached_listing(
        query if query.after is None else replace(query, after=None), route, *layout
    )
    return plan if query.after is None else _after(plan, query.after)


def _has_constants(query: Query) -> bool:
    of_joins = any(join.filter is not None for join in query.reverse_joins)
    return query.filter is not None or query.aggregate is not None or of_joins


def _plan_on(query: Query, route: ClassRoute, *layout: Any) -> QueryPlan:
    """Plan a query with the stores of its class's fragments and the routes of its joins."""
    stores = dict(zip((fragment.system for fragment in route.fragments), layout, strict=False))
    classes = (join.class_name for join in query.joins)
    routes = dict(zip(classes, layout[len(route.fragments) :], strict=True))
    where = _Layout(route, stores.__getitem__, routes.__getitem__)
    plan = _choose(query, where)
    # Before any read: the refusal of the total must not depend on the page.
    return plan if query.count is None else replace(plan, total=_choose(total_query(query), where))


_cached_listing: Final = BoundedCache(_plan_on, CACHED_PLANS, PARTS)
_cached: Final = IdentityCache(_plan_on, CACHED_PLANS, PARTS)


def _after(plan: QueryPlan, after: Position) -> QueryPlan:
    tail = None if plan.tail is None else _after(plan.tail, after)
    return replace(plan, query=replace(plan.query, after=after), tail=tail)


def _choose(query: Query, layout: _Layout) -> QueryPlan:
    route, plan = layout.route, _plan(query, layout)
    if plan.pushdown.pushed is None and not plan.ordered and len(route.fragments) > 1:
        plan = _by_order(query, layout) or plan
    if plan.access is AccessPath.CLIENT_SCAN and not query.allow_scan:
        raise needs_scan(query, route, plan.own_filter, plan.driver.system, ordered=plan.ordered)
    return plan


def _by_order(query: Query, layout: _Layout) -> QueryPlan | None:
    """Plan with the system of the order as driver, for the objects that have a value there.

    In a descending order objects without a value come last: `QueryPlan.tail` finds them if a page
    is short.
    """
    first = query.order[0] if query.order and query.aggregate is None else None
    if first is None or not first.descending or first.path[0] not in layout.route.fragment_of:
        return None
    present = Exists(first.path)
    plan = _plan(_narrow(query, present), layout)
    if not plan.ordered or plan.access is AccessPath.CLIENT_SCAN:
        return None
    return replace(plan, tail=_plan(_narrow(query, Not(present)), layout))


def _narrow(query: Query, condition: Filter) -> Query:
    return replace(query, filter=all_of([*conjuncts(query.filter), condition]))


def _plan(query: Query, layout: _Layout) -> QueryPlan:
    route, aliases = layout.route, {join.alias for join in query.joins}
    joined_conditions, own_conditions = _split(
        conjuncts(query.filter), lambda part: any(path[0] in aliases for path in paths_of(part))
    )
    candidates = [
        _candidate(query, layout, fragment, own_conditions, joined_conditions)
        for fragment in route.fragments
        if fragment is route.anchor
        or any(_holds_all(fragment, paths_of(part)) for part in own_conditions)
    ]
    finding = [c for c in candidates if c.driver is route.anchor or _finds_all(c.pushdown.pushed)]
    best = min(finding, key=_cost) if len(finding) > 1 else finding[0]
    fields = _fields(query, route, best.driver, aliases)
    driver_fields = None if fields is None else tuple(n for n in fields if n in best.driver.fields)
    return replace(best, fields=fields, driver_fields=driver_fields)


def _split(
    parts: Iterable[Filter], test: Callable[[Filter], bool]
) -> tuple[list[Filter], list[Filter]]:
    """Split conjuncts into those that pass a test and those that fail it."""
    results: tuple[list[Filter], list[Filter]] = ([], [])
    for part in parts:
        # Index 0 for those that pass.
        results[not test(part)].append(part)
    return results


def _candidate(
    query: Query,
    layout: _Layout,
    driver: Fragment,
    own_conditions: Sequence[Filter],
    joined_conditions: Sequence[Filter],
) -> QueryPlan:
    """Plan a query with a given driver; the fields are computed later."""
    store = layout.store_of(driver.system)
    followed_fragments = follow_references(query, driver, store, layout.route_of)
    bound_joins = semi_joins(query, joined_conditions, store, followed_fragments)
    offered, other_conditions = _split(
        own_conditions, lambda part: _holds_all(driver, paths_of(part))
    )
    in_order = query.aggregate is None and all(_holds(driver, o.path) for o in query.order)
    order = query.order if in_order else ()
    if is_queryable(store):
        pushdown = store.pushdown(driver, all_of(offered), order)
    else:
        pushdown = Pushdown(None, all_of(offered), AccessPath.CLIENT_SCAN, ordered=not order)
    plan = QueryPlan(
        query=query,
        route=layout.route,
        driver=driver,
        pushdown=pushdown,
        own_filter=all_of(own_conditions),
        residual=all_of([*conjuncts(pushdown.residual), *other_conditions]),
        joined_filter=all_of(joined_conditions),
        semi_joins=bound_joins,
        ordered=pushdown.ordered and in_order,
        aggregated=False,
        fields=None,
    )
    plan = replace(plan, aggregated=_aggregates(plan, store), estimated=_estimates(plan, store))
    if not plan.limited:
        return plan
    projection = projection_of(
        query, layout.route, store, followed_fragments, bound_joins, layout.route_of
    )
    return replace(plan, projection=projection)


def _aggregates(plan: QueryPlan, store: Store) -> bool:
    """Whether the driver's system computes the aggregate: it must see all objects and no others.

    It does not if objects expire: it would count those that are not swept yet.
    """
    aggregate, driver = plan.query.aggregate, plan.driver
    if aggregate is None or plan.residual is not None or plan.joined_filter is not None:
        return False
    paths = [*aggregate.group, *(c.path for c in aggregate.compute.values() if c.path)]
    if driver.ttl_s is not None or not _holds_all(driver, paths):
        return False
    if _is_of_total(plan.query) and driver is not plan.route.anchor:
        return False
    pushed = plan.pushdown.pushed
    return isinstance(store, Aggregating) and store.aggregates(driver, pushed, aggregate)


def _is_of_total(query: Query) -> bool:
    """Whether a query counts a total: of objects that exist on the anchor's system."""
    return query.count is not None and query.aggregate is not None


def _estimates(plan: QueryPlan, store: Store) -> bool:
    """Whether the driver's system estimates how many objects the whole filter finds."""
    if not _is_of_total(plan.query) or plan.query.count is not CountMode.ESTIMATED:
        return False
    if plan.residual is not None or plan.joined_filter is not None:
        return False
    return isinstance(store, Estimating) and store.estimates(plan.driver, plan.pushdown.pushed)


def _holds_all(fragment: Fragment, paths: Sequence[Path] | frozenset[Path]) -> bool:
    return all(_holds(fragment, path) for path in paths)


def _holds(fragment: Fragment, path: Path) -> bool:
    return path == ID or path[0] in fragment.fields


def _finds_all(pushed: Filter | None) -> bool:
    """Whether a fragment that may lack objects still finds all objects searched for.

    It does if one of the conjuncts fails for an object without a record there.
    """
    return any(
        ID not in paths_of(part) and not holds(part, lambda _: MISSING)
        for part in conjuncts(pushed)
    )


def _cost(plan: QueryPlan) -> tuple[int, int, bool, int]:
    """Rank a plan by the work of its driver, then by the work that remains."""
    parts = conjuncts(plan.pushdown.pushed)
    spread = min(map(spread_of, parts), default=UNBOUND)
    unordered = not (plan.ordered or plan.aggregated)
    return _RANKS[plan.access], spread, unordered, -len(parts)


def _fields(
    query: Query, route: ClassRoute, driver: Fragment, aliases: set[str]
) -> tuple[str, ...] | None:
    """Return the fields needed to answer, order, join and evaluate.

    An object that the driver found exists, even if other systems lack a fragment of it.
    """
    if query.fields is None and query.aggregate is None:
        return None
    names = {path[0] for path in query.paths if path != ID and path[0] not in aliases}
    own_names = names & route.schema.fields.keys()
    fields = reaching(route, tuple(sorted({*own_names, *(query.fields or ())})), driver)
    return reaching(route, fields, route.anchor) if _is_of_total(query) else fields


_EQUAL, _BOUNDED, _OPEN = range(3)
UNBOUND: Final = 3
"""The rank of conditions that can match nearly all objects."""


def spread_of(part: Filter) -> int:
    """Rank how many objects a condition is likely to match, fewest first."""
    match part:
        case Compare(Comparison.EQ) | In():
            return _EQUAL
        case Between():
            return _BOUNDED
        case Compare(Comparison.NE) | Exists() | Not():
            return UNBOUND
    return _OPEN
