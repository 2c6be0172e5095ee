"""Planning queries: the driver, the pushdown and the residual filter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import NeedsScan
from mediator.model.evaluate import holds, lookup_of
from mediator.model.filters import (
    ID,
    And,
    Between,
    Compare,
    Comparison,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Or,
    Path,
    all_of,
    conjuncts,
    paths_of,
)
from mediator.model.query import Aggregate, Computation, Function, Join, OrderBy, Query
from mediator.query.explain import filter_document
from mediator.query.planner import QueryPlan, make_plan
from mediator.routing.model import ClassRoute
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType
from mediator.stores.port import AccessPath, Fragment, Pushdown, SearchPage, SearchRequest

FIELDS = {
    "a": Field("a", FieldType.INTEGER, index=True),
    "b": Field("b", FieldType.INTEGER),
    "x": Field("x", FieldType.INTEGER, index=True),
    "y": Field("y", FieldType.INTEGER),
    "z": Field("z", FieldType.INTEGER, index=True, required=True),
}


class Server:
    """A store that pushes down all conditions but LIKE, and the order by any one field."""

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        pushed = [operand for operand in conjuncts(filter_) if self.applies(fragment, operand)]
        residual = [operand for operand in conjuncts(filter_) if operand not in pushed]
        paths = {path for operand in pushed for path in paths_of(operand)}
        access = AccessPath.SERVER_SCAN
        if ID in paths:
            access = AccessPath.KEYS
        elif self.indexed(fragment, paths) or (filter_ is None and self.indexed(fragment, (ID,))):
            access = AccessPath.INDEX
        return Pushdown(all_of(pushed), all_of(residual), access, self.orders(fragment, order))

    def applies(self, fragment: Fragment, operand: Filter) -> bool:
        return not isinstance(operand, Like)

    def orders(self, fragment: Fragment, order: tuple[OrderBy, ...]) -> bool:
        return len(order) <= 1

    def indexed(self, fragment: Fragment, paths: Collection[Path]) -> bool:
        return any(path == ID or fragment.fields[path[0]].index for path in paths)

    def aggregates(self, *_: object) -> bool:
        return True

    async def aggregate(self, *_: object, **__: object) -> Any:
        raise AssertionError("planning calls no server")

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:
        return filter_ is None

    async def estimate(self, *_: object, **__: object) -> Any:
        raise AssertionError("planning calls no server")

    async def find(self, find: SearchRequest) -> SearchPage:
        raise AssertionError("planning calls no server")


class Indexes(Server):
    """A store that pushes down only indexed conditions and orders."""

    def applies(self, fragment: Fragment, operand: Filter) -> bool:
        return isinstance(operand, Compare | Between | In | Exists) and self.indexed(
            fragment, paths_of(operand)
        )

    def orders(self, fragment: Fragment, order: tuple[OrderBy, ...]) -> bool:
        return not order or (
            len(order) == 1 and self.indexed(fragment, [level.path for level in order])
        )

    def aggregates(self, *_: object) -> bool:
        return False

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:
        return False


STORES: Mapping[str, Any] = {"server": Server(), "indexes": Indexes()}


def fragment(system: str, *names: str, ttl_s: float | None = None) -> Fragment:
    fields = {name: FIELDS[name] for name in names}
    groups = {system: tuple(names)}
    return Fragment(system, "db", "things", fields, groups, ttl_s=ttl_s)


def route(*fragments: Fragment) -> ClassRoute:
    return ClassRoute(ClassSchema("things", FIELDS), 1, fragments)


WHOLE = route(fragment("server", *FIELDS))
INDEXED = route(fragment("indexes", *FIELDS))
SPLIT = route(fragment("server", "a", "b"), fragment("indexes", "x", "y", "z"))
REVERSED = route(fragment("indexes", "x", "y", "z"), fragment("server", "a", "b"))


def plan(where: ClassRoute, filter_: Filter | None = None, **members: Any) -> QueryPlan:
    query = Query("db", "things", filter_, **{"allow_scan": True, **members})
    return make_plan(query, where, STORES.__getitem__, lambda _: None)


def eq(name: str, value: int = 1) -> Filter:
    return Compare(Comparison.EQ, tuple(name.split(".")), value)


def ge(name: str, value: int = 1) -> Filter:
    return Compare(Comparison.GE, (name,), value)


def order_by(name: str, *, descending: bool = False) -> tuple[OrderBy, ...]:
    return (OrderBy((name,), descending),)


LIKE = Like(("b",), "%x%")


@pytest.mark.parametrize("where", [WHOLE, INDEXED, SPLIT, REVERSED])
def test_a_listing_by_id_is_no_scan(where: ClassRoute) -> None:
    query_plan = plan(where, allow_scan=False)
    assert (query_plan.driver, query_plan.limited, query_plan.access) == (
        where.anchor,
        True,
        AccessPath.INDEX,
    )


def test_order_and_limit_are_pushed_with_a_whole_filter() -> None:
    query_plan = plan(WHOLE, And((eq("a"), ge("b"))), order=order_by("b"))
    assert (query_plan.residual, query_plan.ordered, query_plan.limited) == (None, True, True)


def test_a_limit_is_not_pushed_before_a_residual() -> None:
    query_plan = plan(WHOLE, And((eq("a"), LIKE)), order=order_by("b"))
    assert (query_plan.pushdown.pushed, query_plan.residual) == (eq("a"), LIKE)
    assert (query_plan.ordered, query_plan.limited) == (True, False)


def test_an_order_that_the_driver_lacks_is_left_to_the_mediator() -> None:
    two = (*order_by("a"), *order_by("b"))
    assert not plan(WHOLE, eq("a"), order=two).ordered
    assert not plan(SPLIT, eq("a"), order=order_by("x")).ordered


@pytest.mark.parametrize(
    ("filter_", "driver"),
    [
        (eq("x"), "indexes"),  # only objects with a fragment there match
        (And((ge("a"), eq("x"))), "indexes"),  # equality is more selective than a range
        (And((eq("a"), ge("x"))), "server"),
        (And((eq("b"), ge("x"))), "indexes"),  # an index is better than a scan
        (And((eq("id"), eq("x"))), "indexes"),  # by id, and without a residual filter
        (And((eq("id"), eq("b"))), "server"),
        (Compare(Comparison.NE, ("x",), 1), "server"),
        (Not(Exists(("x",))), "server"),
        (Or((eq("a"), eq("x"))), "server"),
        (And((eq("y"), LIKE)), "server"),  # without an index it would have to send every object
    ],
)
def test_the_driver_is_the_system_with_least_work(filter_: Filter, driver: str) -> None:
    assert plan(SPLIT, filter_).driver.system == driver


def test_a_condition_on_the_id_lets_the_anchor_drive() -> None:
    query_plan = plan(SPLIT, And((eq("id"), Compare(Comparison.NE, ("x",), 1))))
    assert query_plan.driver is SPLIT.anchor
    assert query_plan.residual == Compare(Comparison.NE, ("x",), 1)


@pytest.mark.parametrize(
    ("where", "filter_", "order"),
    [
        (INDEXED, eq("y"), ()),
        (INDEXED, None, order_by("y")),
        (SPLIT, eq("y"), ()),
        (SPLIT, Or((eq("a"), eq("x"))), ()),
        (SPLIT, None, order_by("x")),  # objects without a fragment there come first
        (SPLIT, None, (*order_by("a"), *order_by("x"))),
        (WHOLE, LIKE, ()),
    ],
)
def test_scans_are_refused_unless_allowed(
    where: ClassRoute, filter_: Filter | None, order: tuple[OrderBy, ...]
) -> None:
    with pytest.raises(NeedsScan) as error:
        plan(where, filter_, order=order, allow_scan=False)
    for path in {*paths_of(filter_), *(level.path for level in order)}:
        assert path[0] in error.value.detail
    assert error.value.locations
    assert plan(where, filter_, order=order).access is AccessPath.CLIENT_SCAN


def refusal(where: ClassRoute, filter_: Filter | None = None, **members: Any) -> NeedsScan:
    with pytest.raises(NeedsScan) as error:
        plan(where, filter_, allow_scan=False, **members)
    return error.value


def test_an_index_is_advised_only_where_there_is_none() -> None:
    error = refusal(INDEXED, eq("y"))
    assert "y has no index" in error.detail
    assert "What helps: an index on y, another placement" in error.detail
    both = refusal(INDEXED, Or((eq("y"), eq("x"))))
    assert "an index on y, another" in both.detail
    assert "no index serves x" in both.detail
    indexed = refusal(SPLIT, Or((eq("a"), eq("x"))))
    assert "no index serves a and x" in indexed.detail
    assert "an index on" not in indexed.detail
    assert [location.pointer for location in indexed.locations] == ["/filter"]
    elsewhere = refusal(SPLIT, order=order_by("x"))
    assert 'What helps: {"exists": "x"} in the filter' in elsewhere.detail
    assert "an index on" not in elsewhere.detail


def test_an_order_by_a_computed_field_needs_no_index() -> None:
    counted = Aggregate((("a",),), {"n": Computation(Function.COUNT)})
    error = refusal(INDEXED, eq("y"), aggregate=counted, order=order_by("n", descending=True))
    assert [location.pointer for location in error.locations] == ["/filter"]
    assert "an index on y, another" in error.detail
    everything = refusal(INDEXED, aggregate=counted, order=order_by("a"))
    assert [location.pointer for location in everything.locations] == ["/aggregate"]
    assert "an index on" not in everything.detail


def test_an_available_order_is_not_reported_as_missing() -> None:
    error = refusal(INDEXED, LIKE, order=order_by("x"))
    assert [location.pointer for location in error.locations] == ["/filter"]
    assert "by indexes: b has no index. What helps: an index on b, another" in error.detail


def test_a_scan_by_the_server_is_allowed() -> None:
    query_plan = plan(WHOLE, eq("b"), allow_scan=False)
    assert (query_plan.access, query_plan.residual) == (AccessPath.SERVER_SCAN, None)


def test_the_system_that_has_the_order_drives_downwards() -> None:
    query_plan = plan(SPLIT, None, order=order_by("x", descending=True), allow_scan=False)
    assert (query_plan.driver.system, query_plan.pushdown.pushed) == ("indexes", Exists(("x",)))
    assert query_plan.limited
    assert query_plan.tail is not None
    assert query_plan.tail.driver is SPLIT.anchor
    assert query_plan.tail.residual == Not(Exists(("x",)))


def test_a_system_drives_if_it_has_every_object() -> None:
    """A required field can be newer than an object, so only a condition ensures its presence."""
    for name in ("x", "z"):
        with pytest.raises(NeedsScan, match=f'"exists": "{name}"'):
            plan(SPLIT, None, order=order_by(name), allow_scan=False)
        query_plan = plan(SPLIT, Exists((name,)), order=order_by(name), allow_scan=False)
        assert (query_plan.driver.system, query_plan.limited, query_plan.tail) == (
            "indexes",
            True,
            None,
        )


def test_a_selective_condition_is_preferred_to_an_order() -> None:
    query_plan = plan(SPLIT, eq("a"), order=order_by("x", descending=True), allow_scan=False)
    assert (query_plan.driver, query_plan.ordered, query_plan.tail) == (SPLIT.anchor, False, None)


JOIN = Join("that", ("a",), "others", ("n",))


def test_conditions_on_joined_objects_are_tested_afterwards() -> None:
    joined_filter = Or((eq("that.n"), eq("a")))
    query_plan = plan(WHOLE, And((eq("a"), joined_filter)), order=order_by("b"), joins=(JOIN,))
    assert (query_plan.own_filter, query_plan.joined_filter, query_plan.residual) == (
        eq("a"),
        joined_filter,
        None,
    )
    assert query_plan.ordered
    assert not query_plan.limited
    assert plan(WHOLE, eq("a"), order=order_by("b"), joins=(JOIN,)).limited


COUNT = Aggregate(
    (("b",),), {"n": Computation(Function.COUNT), "s": Computation(Function.SUM, ("a",))}
)


def test_an_aggregate_is_pushed_only_with_all_its_fields() -> None:
    assert plan(WHOLE, eq("a"), aggregate=COUNT, allow_scan=False).aggregated
    assert plan(SPLIT, eq("a"), aggregate=COUNT, allow_scan=False).aggregated
    assert plan(WHOLE, aggregate=COUNT, allow_scan=False).aggregated
    for query_plan in (
        plan(WHOLE, LIKE, aggregate=COUNT),
        plan(SPLIT, eq("x"), aggregate=COUNT),
        plan(SPLIT, And((eq("a"), eq("x"))), aggregate=COUNT),
        plan(WHOLE, eq("that.n"), aggregate=COUNT, joins=(JOIN,)),
        plan(WHOLE, aggregate=Aggregate((("that", "n"),), {}), joins=(JOIN,)),
        plan(route(fragment("server", *FIELDS, ttl_s=60.0)), eq("a"), aggregate=COUNT),
        plan(INDEXED, eq("a"), aggregate=COUNT),
    ):
        assert not query_plan.aggregated


def test_a_plan_reads_the_needed_fields_and_one_of_the_driver() -> None:
    query_plan = plan(SPLIT, eq("x"), order=order_by("b"), fields=("y",), joins=(JOIN,))
    assert query_plan.fields == ("a", "b", "x", "y")
    assert plan(SPLIT, fields=("x",)).fields == ("a", "x")
    assert plan(route(fragment("server"), fragment("indexes", "x")), fields=("x",)).fields is None
    assert plan(SPLIT).fields is None
    assert plan(SPLIT, eq("a"), aggregate=COUNT).fields == ("a", "b")


VALUES = st.sampled_from((None, 0, 1, 2))
OBJECTS = st.dictionaries(st.sampled_from(sorted(FIELDS)), VALUES)
PATHS = st.sampled_from([*((name,) for name in FIELDS), ID])
LEAVES: st.SearchStrategy[Filter] = st.one_of(
    st.builds(Compare, st.sampled_from(Comparison), PATHS, st.sampled_from((0, 1))),
    st.builds(Exists, PATHS),
    st.builds(Between, PATHS, st.just(0), st.just(1)),
    st.just(LIKE),
)
FILTERS = st.recursive(
    LEAVES,
    lambda operands: st.one_of(
        st.lists(operands, max_size=3).map(lambda items: And(tuple(items))),
        st.lists(operands, max_size=3).map(lambda items: Or(tuple(items))),
        operands.map(Not),
    ),
    max_leaves=6,
)
ORDERS = st.lists(st.builds(OrderBy, PATHS, st.booleans()), max_size=2).map(tuple)


@given(
    where=st.sampled_from((WHOLE, INDEXED, SPLIT, REVERSED)),
    filter_=FILTERS,
    order=ORDERS,
    values=OBJECTS,
    capabilities=st.sets(st.sampled_from(("server", "indexes"))),
)
def test_no_plan_loses_an_object(
    where: ClassRoute,
    filter_: Filter,
    order: tuple[OrderBy, ...],
    values: dict[str, Any],
    capabilities: set[str],
) -> None:
    """A plan or its tail finds an object exactly if the filter holds for it."""
    fragments = [f for f in where.fragments if f is where.anchor or f.system in capabilities]
    values = {n: v for n, v in values.items() if any(n in f.fields for f in fragments)}
    lookup = lookup_of("1", values)
    query_plan = plan(where, filter_, order=order)

    def finds(candidate: QueryPlan | None) -> bool:
        if candidate is None or candidate.driver not in fragments:
            return False
        conditions = [
            operand
            for operand in (candidate.pushdown.pushed, candidate.residual, candidate.joined_filter)
            if operand is not None
        ]
        return all(holds(operand, lookup) for operand in conditions)

    assert finds(query_plan) + finds(query_plan.tail) == holds(filter_, lookup)


def test_filters_are_explained_as_they_are_sent() -> None:
    document = filter_document(And((eq("a"), Not(Or((Exists(("b",)), Between(("x",), 1, 2)))))))
    assert document == {
        "and": [{"eq": ["a", 1]}, {"not": {"or": [{"exists": "b"}, {"between": ["x", 1, 2]}]}}]
    }
