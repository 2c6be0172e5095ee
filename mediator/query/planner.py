"""Planning a query: what one store finds, and what is left to be evaluated on what it found.

A filter is taken apart into conjuncts. One system finds the objects (the driver): it is offered the
conjuncts on fields that it holds, and does what it can do exactly. The other systems add their
parts, and whatever is left of the filter is evaluated on the objects put together. So the answer
does not depend on where the data lives; only the work does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mediator.errors import NeedsScan, Place
from mediator.placement.routing import ClassRoute
from mediator.query.conjuncts import all_of, conjuncts, paths_of
from mediator.query.evaluate import holds
from mediator.query.filters import ID, And, Filter, Path
from mediator.query.model import Query
from mediator.schema.tree import MISSING
from mediator.stores.port import Access, Aggregating, Fragment, Pushdown, Queryable, Store

__all__ = ["Plan", "make_plan"]

_EVERYTHING: Final = And(())
"""Asks for all objects although not all are wanted: not what an index is for."""

_RANKS: Final = {access: rank for rank, access in enumerate(Access)}


@dataclass(frozen=True, slots=True)
class Plan:
    """How a query is carried out.

    Attributes:
        query: The query.
        route: Where the class lives; of a query that the primary answers, the primary.
        driver: The fragment whose system finds the objects.
        pushdown: What that system does.
        own: The filter on the class's own fields; None if there is none.
        residual: What of it is evaluated on the objects put together; None: nothing.
        late: What needs joined objects; None: nothing.
        ordered: Whether the objects come in the order asked for.
        aggregated: Whether the system of the driver computes the aggregate.
        fields: The fields that are read, sorted; None: all.
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

    @property
    def limited(self) -> bool:
        """Whether the limit is pushed: only if nothing is left to do afterwards."""
        whole = self.residual is None and self.late is None
        return self.ordered and whole and self.query.aggregate is None


def make_plan(query: Query, route: ClassRoute, store_of: Callable[[str], Store]) -> Plan:
    """Plan a query.

    Args:
        query: The query.
        route: Where its class lives.
        store_of: Finds the store of a system.

    Raises:
        NeedsScan: A store could only send all of its records, and that is not allowed.
        Unavailable: A system of the class is not connected.
    """
    aliases = {join.alias for join in query.joins}
    parts = conjuncts(query.filter)
    late = [part for part in parts if _leads_to(paths_of(part), aliases)]
    own = [part for part in parts if part not in late]
    driver, pushdown = _choose(query, route, own, store_of)
    offered = _offered(driver, own)
    rest = [part for part in own if part not in offered]
    residual = all_of([*conjuncts(pushdown.residual), *rest])
    plan = Plan(
        query=query,
        route=route,
        driver=driver,
        pushdown=pushdown,
        own=all_of(own),
        residual=residual,
        late=all_of(late),
        ordered=pushdown.ordered and _orders(query, driver),
        aggregated=_is_aggregated(query, route, driver, pushdown, own, late, store_of),
        fields=_fields(query, route, own, aliases),
    )
    _check_scan(plan)
    return plan


def _is_aggregated(
    query: Query,
    route: ClassRoute,
    driver: Fragment,
    pushdown: Pushdown,
    own: Sequence[Filter],
    late: Sequence[Filter],
    store_of: Callable[[str], Store],
) -> bool:
    """Whether the driver's system computes the aggregate: it must see every object, and only those.

    Where objects expire it would count those that have, and are not swept up yet.
    """
    aggregate, store = query.aggregate, store_of(driver.system)
    if aggregate is None or late or driver is not route.anchor or driver.ttl_s is not None:
        return False
    if pushdown.residual is not None or len(_offered(driver, own)) < len(own):
        return False
    paths = [*aggregate.group, *(c.path for c in aggregate.compute.values() if c.path)]
    if not all(_held(driver, path) for path in paths) or not isinstance(store, Aggregating):
        return False
    return store.aggregates(driver, pushdown.pushed, aggregate.group, aggregate.compute)


def _leads_to(paths: Iterable[Path], aliases: set[str]) -> bool:
    return any(path[0] in aliases for path in paths)


def _offered(fragment: Fragment, own: Sequence[Filter]) -> list[Filter]:
    """Return the conjuncts on what a fragment holds."""
    return [part for part in own if all(_held(fragment, path) for path in paths_of(part))]


def _held(fragment: Fragment, path: Path) -> bool:
    return path == ID or path[0] in fragment.fields


def _orders(query: Query, fragment: Fragment) -> bool:
    return query.aggregate is None and all(_held(fragment, o.path) for o in query.order)


def _choose(
    query: Query, route: ClassRoute, own: Sequence[Filter], store_of: Callable[[str], Store]
) -> tuple[Fragment, Pushdown]:
    """Choose the system that finds the objects with the least work."""
    candidates = []
    for fragment in route.fragments:
        pushdown = _asked(store_of(fragment.system), fragment, query, own)
        if fragment is route.anchor or _finds_all(pushdown.pushed):
            candidates.append((fragment, pushdown))
    return min(candidates, key=lambda one: _cost(one[1], query, one[0]))


def _asked(store: Store, fragment: Fragment, query: Query, own: Sequence[Filter]) -> Pushdown:
    order = query.order if _orders(query, fragment) else ()
    offered = all_of(_offered(fragment, own))
    if offered is None and (query.filter is not None or query.aggregate is not None):
        offered = _EVERYTHING
    if isinstance(store, Queryable):
        return store.pushdown(fragment, offered, order)
    return Pushdown(None, offered, Access.CLIENT_SCAN, ordered=not order)


def _finds_all(pushed: Filter | None) -> bool:
    """Whether a fragment that need not hold a part of every object finds all that are looked for.

    So it is if one of the conjuncts fails for an object that has nothing there.
    """
    return any(
        ID not in paths_of(part) and not holds(part, lambda _: MISSING)
        for part in conjuncts(pushed)
    )


def _cost(pushdown: Pushdown, query: Query, fragment: Fragment) -> tuple[int, bool, int]:
    unordered = not (pushdown.ordered and _orders(query, fragment))
    return _RANKS[pushdown.access], unordered, -len(conjuncts(pushdown.pushed))


def _fields(
    query: Query, route: ClassRoute, own: Sequence[Filter], aliases: set[str]
) -> tuple[str, ...] | None:
    """Return the fields that are needed: to answer, to order, to join and to evaluate."""
    if query.fields is None and query.aggregate is None:
        return None
    paths = {path for part in own for path in paths_of(part)}
    paths |= {level.path for level in query.order}
    paths |= {join.reference for join in query.joins}
    for part in conjuncts(query.filter):
        paths |= paths_of(part)
    if query.aggregate is not None:
        paths |= {*query.aggregate.group}
        paths |= {c.path for c in query.aggregate.compute.values() if c.path is not None}
    names = {path[0] for path in paths if path != ID and path[0] not in aliases}
    known = names & route.schema.fields.keys()
    return tuple(sorted({*known, *(query.fields or ())}))


def _check_scan(plan: Plan) -> None:
    """Refuse what would send a whole class over, unless it is asked for."""
    query = plan.query
    listed = query.filter is None and not query.order and query.aggregate is None
    if plan.pushdown.access is Access.CLIENT_SCAN and not (listed or query.allow_scan):
        names = sorted({p[0] for p in paths_of(plan.own)} | {o.path[0] for o in query.order})
        what = f"an index on one of {', '.join(names)}" if names else "a filter on an indexed field"
        raise NeedsScan(
            f"{plan.driver.system} has no index for this query and would have to send every"
            f" object of {query.class_name}. What helps: {what}, another placement, or"
            ' "allow_scan": true.',
            places=[Place("/filter" if plan.own is not None else "/order", "has no index")],
            extra={"system": plan.driver.system},
        )
