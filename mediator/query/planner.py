"""Planning a query: the driver, what is pushed down to it, and the residual filter.

A filter is taken apart into conjuncts. One system finds the objects (the driver): it is offered the
conjuncts on fields that it holds, and does what it can do exactly. The other systems add their
fragments, and whatever is left of the filter is evaluated on the objects put together. So the
answer does not depend on where the data is; only the work does.

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
    followed,
    projection_of,
    semi_joins,
)
from mediator.query.totals import counting
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
    """How a query is carried out.

    Attributes:
        route: Of the class; of a query that the view answers, the view.
        driver: The fragment whose system finds the objects.
        pushdown: What that system does.
        own: The filter on the class's own fields; None if there is none.
        residual: What of it is evaluated on the objects put together; None: nothing.
        late: What needs joined objects; None: nothing.
        ordered: Whether the objects come in the requested order.
        aggregated: Whether the system of the driver computes the aggregate.
        estimated: Whether it estimates the total, which the aggregate would count.
        fields: The fields that are read, sorted; None: all.
        semi_joins: What the driver's system does beforehand of what needs joined objects.
        driver_fields: Those of the fields that the driver reads; None: all that it holds.
        projection: What the driver's system answers in one go, if documents are requested; None: it
            sends records.
        rest: Carried out if too few objects are found: it finds those without a value to order by,
            which this one leaves out, and which come last. None: it leaves nothing out.
        total: How the total is computed, if it is requested.
    """

    query: Query
    route: ClassRoute
    driver: Fragment
    pushdown: Pushdown
    own: Filter | None
    residual: Filter | None
    late: Filter | None
    ordered: bool
    aggregated: bool
    fields: tuple[str, ...] | None
    semi_joins: SemiJoins = NO_SEMI_JOINS
    driver_fields: tuple[str, ...] | None = None
    projection: Projection | None = None
    rest: QueryPlan | None = None
    estimated: bool = False
    total: QueryPlan | None = None

    @property
    def limited(self) -> bool:
        """Whether the limit is pushed: only if nothing is left out afterwards."""
        whole = self.residual is None and (self.late is None or self.semi_joins.exact)
        return self.ordered and whole and self.query.aggregate is None

    @property
    def access(self) -> AccessPath:
        """How the objects are found: sending all of them is a scan."""
        if self.pushdown.pushed is None and self.semi_joins.joins:
            return AccessPath.SERVER_SCAN
        is_done_there = self.limited or self.aggregated or self.estimated
        through = self.pushdown.pushed is None and not is_done_there
        return AccessPath.CLIENT_SCAN if through else self.pushdown.access


class _Layout(NamedTuple):
    """Where the class of a query is stored, and the other classes and stores it may need."""

    route: ClassRoute
    store_of: StoreOf
    route_of: RouteOf


def make_plan(query: Query, route: ClassRoute, store_of: StoreOf, route_of: RouteOf) -> QueryPlan:
    """Plan a query.

    Raises:
        NeedsScan: All objects would have to be sent over, and that is not allowed.
        Unavailable: A system of the class is not connected.
    """
    layout: list[Any] = [store_of(fragment.system) for fragment in route.fragments]
    layout += [route_of(join.class_name) for join in query.joins]
    if _has_constants(query):
        return _cached(query, route, *layout)
    # Without constants, which may be equal and yet of different types, alike queries have one plan.
    plan = _cached_listing(
        query if query.after is None else replace(query, after=None), route, *layout
    )
    return plan if query.after is None else _beyond(plan, query.after)


def _has_constants(query: Query) -> bool:
    of_joins = any(join.filter is not None for join in query.reverse_joins)
    return query.filter is not None or query.aggregate is not None or of_joins


def _plan_on(query: Query, route: ClassRoute, *layout: Any) -> QueryPlan:
    """Plan a query with the stores of its class's fragments, and the routes of what it joins."""
    stores = dict(zip((fragment.system for fragment in route.fragments), layout, strict=False))
    classes = (join.class_name for join in query.joins)
    routes = dict(zip(classes, layout[len(route.fragments) :], strict=True))
    where = _Layout(route, stores.__getitem__, routes.__getitem__)
    plan = _chosen(query, where)
    # Before anything is read: that the total is refused must not depend on what a page shows.
    return plan if query.count is None else replace(plan, total=_chosen(counting(query), where))


_cached_listing: Final = BoundedCache(_plan_on, CACHED_PLANS, PARTS)
_cached: Final = IdentityCache(_plan_on, CACHED_PLANS, PARTS)


def _beyond(plan: QueryPlan, after: Position) -> QueryPlan:
    rest = None if plan.rest is None else _beyond(plan.rest, after)
    return replace(plan, query=replace(plan.query, after=after), rest=rest)


def _chosen(query: Query, layout: _Layout) -> QueryPlan:
    route, plan = layout.route, _plan(query, layout)
    if plan.pushdown.pushed is None and not plan.ordered and len(route.fragments) > 1:
        plan = _by_order(query, layout) or plan
    if plan.access is AccessPath.CLIENT_SCAN and not query.allow_scan:
        raise needs_scan(query, route, plan.own, plan.driver.system, ordered=plan.ordered)
    return plan


def _by_order(query: Query, layout: _Layout) -> QueryPlan | None:
    """Plan with the system of the order as driver, for the objects that have a value there.

    In a descending order the others come last, and are read (`QueryPlan.rest`) if a page is short.
    """
    first = query.order[0] if query.order and query.aggregate is None else None
    if first is None or not first.descending or first.path[0] not in layout.route.fragment_of:
        return None
    present = Exists(first.path)
    plan = _plan(_narrowed(query, present), layout)
    if not plan.ordered or plan.access is AccessPath.CLIENT_SCAN:
        return None
    return replace(plan, rest=_plan(_narrowed(query, Not(present)), layout))


def _narrowed(query: Query, condition: Filter) -> Query:
    return replace(query, filter=all_of([*conjuncts(query.filter), condition]))


def _plan(query: Query, layout: _Layout) -> QueryPlan:
    route, aliases = layout.route, {join.alias for join in query.joins}
    late, own = _split(
        conjuncts(query.filter), lambda part: any(path[0] in aliases for path in paths_of(part))
    )
    candidates = [
        _candidate(query, layout, fragment, own, late)
        for fragment in route.fragments
        if fragment is route.anchor or any(_holds_all(fragment, paths_of(part)) for part in own)
    ]
    finding = [c for c in candidates if c.driver is route.anchor or _finds_all(c.pushdown.pushed)]
    best = min(finding, key=_cost) if len(finding) > 1 else finding[0]
    fields = _fields(query, route, best.driver, aliases)
    read_there = None if fields is None else tuple(n for n in fields if n in best.driver.fields)
    return replace(best, fields=fields, driver_fields=read_there)


def _split(
    parts: Iterable[Filter], test: Callable[[Filter], bool]
) -> tuple[list[Filter], list[Filter]]:
    """Split conjuncts into those that pass a test, and the others."""
    results: tuple[list[Filter], list[Filter]] = ([], [])
    for part in parts:
        # Index 0 for those that pass.
        results[not test(part)].append(part)
    return results


def _candidate(
    query: Query, layout: _Layout, driver: Fragment, own: Sequence[Filter], late: Sequence[Filter]
) -> QueryPlan:
    """Plan a query with a given driver; the fields are left to be computed."""
    store = layout.store_of(driver.system)
    others = followed(query, driver, store, layout.route_of)
    bound = semi_joins(query, late, store, others)
    offered, rest = _split(own, lambda part: _holds_all(driver, paths_of(part)))
    in_order = query.aggregate is None and all(_held(driver, o.path) for o in query.order)
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
        own=all_of(own),
        residual=all_of([*conjuncts(pushdown.residual), *rest]),
        late=all_of(late),
        semi_joins=bound,
        ordered=pushdown.ordered and in_order,
        aggregated=False,
        fields=None,
    )
    plan = replace(plan, aggregated=_aggregates(plan, store), estimated=_estimates(plan, store))
    if not plan.limited:
        return plan
    projection = projection_of(query, layout.route, store, others, bound, layout.route_of)
    return replace(plan, projection=projection)


def _aggregates(plan: QueryPlan, store: Store) -> bool:
    """Whether the driver's system computes the aggregate: it must see all objects, and only those.

    Where objects expire it would count those that have, and are not swept up yet.
    """
    aggregate, driver = plan.query.aggregate, plan.driver
    if aggregate is None or plan.residual is not None or plan.late is not None:
        return False
    paths = [*aggregate.group, *(c.path for c in aggregate.compute.values() if c.path)]
    if driver.ttl_s is not None or not _holds_all(driver, paths):
        return False
    if _is_of_total(plan.query) and driver is not plan.route.anchor:
        return False
    pushed = plan.pushdown.pushed
    return isinstance(store, Aggregating) and store.aggregates(driver, pushed, aggregate)


def _is_of_total(query: Query) -> bool:
    """Whether a query is `counting`: of objects that exist, as the anchor's system knows them."""
    return query.count is not None and query.aggregate is not None


def _estimates(plan: QueryPlan, store: Store) -> bool:
    """Whether the driver's system estimates how many objects the whole filter finds."""
    if not _is_of_total(plan.query) or plan.query.count is not CountMode.ESTIMATED:
        return False
    if plan.residual is not None or plan.late is not None:
        return False
    return isinstance(store, Estimating) and store.estimates(plan.driver, plan.pushdown.pushed)


def _holds_all(fragment: Fragment, paths: Sequence[Path] | frozenset[Path]) -> bool:
    return all(_held(fragment, path) for path in paths)


def _held(fragment: Fragment, path: Path) -> bool:
    return path == ID or path[0] in fragment.fields


def _finds_all(pushed: Filter | None) -> bool:
    """Whether a fragment that need not have all objects finds all that are searched for.

    So it is if one of the conjuncts fails for an object that has nothing there.
    """
    return any(
        ID not in paths_of(part) and not holds(part, lambda _: MISSING)
        for part in conjuncts(pushed)
    )


def _cost(plan: QueryPlan) -> tuple[int, int, bool, int]:
    """Rank a plan by what its driver has to look through, then by what is left to be done."""
    parts = conjuncts(plan.pushdown.pushed)
    spread = min(map(spread_of, parts), default=UNBOUND)
    unordered = not (plan.ordered or plan.aggregated)
    return _RANKS[plan.access], spread, unordered, -len(parts)


def _fields(
    query: Query, route: ClassRoute, driver: Fragment, aliases: set[str]
) -> tuple[str, ...] | None:
    """Return the fields that are needed: to answer, to order, to join and to evaluate.

    What the driver has found is there, whether or not the other systems have a fragment of it.
    """
    if query.fields is None and query.aggregate is None:
        return None
    names = {path[0] for path in query.paths if path != ID and path[0] not in aliases}
    known = names & route.schema.fields.keys()
    fields = reaching(route, tuple(sorted({*known, *(query.fields or ())})), driver)
    return reaching(route, fields, route.anchor) if _is_of_total(query) else fields


_EQUAL, _BOUNDED, _OPEN = range(3)
UNBOUND: Final = 3
"""The rank of conditions that may leave nearly all objects."""


def spread_of(part: Filter) -> int:
    """Rank how many objects a condition is likely to leave, fewest first."""
    match part:
        case Compare(Comparison.EQ) | In():
            return _EQUAL
        case Between():
            return _BOUNDED
        case Compare(Comparison.NE) | Exists() | Not():
            return UNBOUND
    return _OPEN
