"""Planning queries: which system drives, what it is given, and what is left."""

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
    """A store that pushes every condition but LIKE down, and has the order of any one field."""

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        pushed = [operand for operand in conjuncts(filter_) if self.applies(fragment, operand)]
        left = [operand for operand in conjuncts(filter_) if operand not in pushed]
        used = {path for operand in pushed for path in paths_of(operand)}
        access = AccessPath.SERVER_SCAN
        if ID in used:
            access = AccessPath.KEYS
        elif self.indexed(fragment, used) or (filter_ is None and self.indexed(fragment, (ID,))):
            access = AccessPath.INDEX
        return Pushdown(all_of(pushed), all_of(left), access, self.orders(fragment, order))

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
    """A store that pushes only what it has an index for, and only has the order of indexes."""

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
LISTED = route(fragment("indexes", *FIELDS))
SPLIT = route(fragment("server", "a", "b"), fragment("indexes", "x", "y", "z"))
TURNED = route(fragment("indexes", "x", "y", "z"), fragment("server", "a", "b"))


def plan(where: ClassRoute, filter_: Filter | None = None, **members: Any) -> QueryPlan:
    query = Query("db", "things", filter_, **{"allow_scan": True, **members})
    return make_plan(query, where, STORES.__getitem__, lambda _: None)


def eq(name: str, value: int = 1) -> Filter:
    return Compare(Comparison.EQ, tuple(name.split(".")), value)


def ge(name: str, value: int = 1) -> Filter:
    return Compare(Comparison.GE, (name,), value)


def by(name: str, *, down: bool = False) -> tuple[OrderBy, ...]:
    return (OrderBy((name,), down),)


LIKE = Like(("b",), "%x%")


@pytest.mark.parametrize("where", [WHOLE, LISTED, SPLIT, TURNED])
def test_a_listing_by_id_is_no_scan(where: ClassRoute) -> None:
    found = plan(where, allow_scan=False)
    assert (found.driver, found.limited, found.access) == (where.anchor, True, AccessPath.INDEX)


def test_a_filter_that_is_pushed_whole_is_ordered_and_limited_there() -> None:
    found = plan(WHOLE, And((eq("a"), ge("b"))), order=by("b"))
    assert (found.residual, found.ordered, found.limited) == (None, True, True)


def test_a_limit_is_not_pushed_before_a_residual() -> None:
    found = plan(WHOLE, And((eq("a"), LIKE)), order=by("b"))
    assert (found.pushdown.pushed, found.residual) == (eq("a"), LIKE)
    assert (found.ordered, found.limited) == (True, False)


def test_an_order_that_the_driver_lacks_is_left_to_the_mediator() -> None:
    two = (*by("a"), *by("b"))
    assert not plan(WHOLE, eq("a"), order=two).ordered
    assert not plan(SPLIT, eq("a"), order=by("x")).ordered


@pytest.mark.parametrize(
    ("filter_", "driver"),
    [
        (eq("x"), "indexes"),  # no object without a fragment there meets it
        (And((ge("a"), eq("x"))), "indexes"),  # equality leaves less than a bound
        (And((eq("a"), ge("x"))), "server"),
        (And((eq("b"), ge("x"))), "indexes"),  # an index is better than a scan
        (And((eq("id"), eq("x"))), "indexes"),  # by its id, and it has nothing else left to do
        (And((eq("id"), eq("b"))), "server"),
        (Compare(Comparison.NE, ("x",), 1), "server"),
        (Not(Exists(("x",))), "server"),
        (Or((eq("a"), eq("x"))), "server"),
        (And((eq("y"), LIKE)), "server"),  # no index, so it would have to send all
    ],
)
def test_the_driver_is_the_system_with_least_work(filter_: Filter, driver: str) -> None:
    assert plan(SPLIT, filter_).driver.system == driver


def test_a_condition_on_the_id_lets_the_anchor_drive() -> None:
    found = plan(SPLIT, And((eq("id"), Compare(Comparison.NE, ("x",), 1))))
    assert found.driver is SPLIT.anchor
    assert found.residual == Compare(Comparison.NE, ("x",), 1)


@pytest.mark.parametrize(
    ("where", "filter_", "order"),
    [
        (LISTED, eq("y"), ()),
        (LISTED, None, by("y")),
        (SPLIT, eq("y"), ()),
        (SPLIT, Or((eq("a"), eq("x"))), ()),
        (SPLIT, None, by("x")),  # objects without a fragment there come first
        (SPLIT, None, (*by("a"), *by("x"))),
        (WHOLE, LIKE, ()),
    ],
)
def test_scans_are_refused_unless_allowed(
    where: ClassRoute, filter_: Filter | None, order: tuple[OrderBy, ...]
) -> None:
    with pytest.raises(NeedsScan) as refused:
        plan(where, filter_, order=order, allow_scan=False)
    for path in {*paths_of(filter_), *(level.path for level in order)}:
        assert path[0] in refused.value.detail
    assert refused.value.locations
    assert plan(where, filter_, order=order).access is AccessPath.CLIENT_SCAN


def refusal(where: ClassRoute, filter_: Filter | None = None, **members: Any) -> NeedsScan:
    with pytest.raises(NeedsScan) as refused:
        plan(where, filter_, allow_scan=False, **members)
    return refused.value


def test_an_index_is_advised_only_where_there_is_none() -> None:
    refused = refusal(LISTED, eq("y"))
    assert "y has no index" in refused.detail
    assert "What helps: an index on y, another placement" in refused.detail
    both = refusal(LISTED, Or((eq("y"), eq("x"))))
    assert "an index on y, another" in both.detail
    assert "no index serves x" in both.detail
    indexed = refusal(SPLIT, Or((eq("a"), eq("x"))))
    assert "no index serves a and x" in indexed.detail
    assert "an index on" not in indexed.detail
    assert [location.pointer for location in indexed.locations] == ["/filter"]
    elsewhere = refusal(SPLIT, order=by("x"))
    assert 'What helps: {"exists": "x"} in the filter' in elsewhere.detail
    assert "an index on" not in elsewhere.detail


def test_an_order_by_a_computed_field_needs_no_index() -> None:
    counted = Aggregate((("a",),), {"n": Computation(Function.COUNT)})
    refused = refusal(LISTED, eq("y"), aggregate=counted, order=by("n", down=True))
    assert [location.pointer for location in refused.locations] == ["/filter"]
    assert "an index on y, another" in refused.detail
    everything = refusal(LISTED, aggregate=counted, order=by("a"))
    assert [location.pointer for location in everything.locations] == ["/aggregate"]
    assert "an index on" not in everything.detail


def test_an_available_order_is_not_reported_as_missing() -> None:
    refused = refusal(LISTED, LIKE, order=by("x"))
    assert [location.pointer for location in refused.locations] == ["/filter"]
    assert "by indexes: b has no index. What helps: an index on b, another" in refused.detail


def test_a_scan_by_the_server_is_allowed() -> None:
    found = plan(WHOLE, eq("b"), allow_scan=False)
    assert (found.access, found.residual) == (AccessPath.SERVER_SCAN, None)


def test_the_system_that_has_the_order_drives_downwards() -> None:
    found = plan(SPLIT, None, order=by("x", down=True), allow_scan=False)
    assert (found.driver.system, found.pushdown.pushed) == ("indexes", Exists(("x",)))
    assert found.limited
    assert found.tail is not None
    assert found.tail.driver is SPLIT.anchor
    assert found.tail.residual == Not(Exists(("x",)))


def test_a_system_drives_if_it_has_every_object() -> None:
    """A required field may be newer than an object, so only a condition ensures its presence."""
    for name in ("x", "z"):
        with pytest.raises(NeedsScan, match=f'"exists": "{name}"'):
            plan(SPLIT, None, order=by(name), allow_scan=False)
        found = plan(SPLIT, Exists((name,)), order=by(name), allow_scan=False)
        assert (found.driver.system, found.limited, found.tail) == ("indexes", True, None)


def test_a_selective_condition_is_preferred_to_an_order() -> None:
    found = plan(SPLIT, eq("a"), order=by("x", down=True), allow_scan=False)
    assert (found.driver, found.ordered, found.tail) == (SPLIT.anchor, False, None)


JOIN = Join("that", ("a",), "others", ("n",))


def test_conditions_on_joined_objects_are_tested_afterwards() -> None:
    late = Or((eq("that.n"), eq("a")))
    found = plan(WHOLE, And((eq("a"), late)), order=by("b"), joins=(JOIN,))
    assert (found.own_filter, found.joined_filter, found.residual) == (eq("a"), late, None)
    assert found.ordered
    assert not found.limited
    assert plan(WHOLE, eq("a"), order=by("b"), joins=(JOIN,)).limited


COUNT = Aggregate(
    (("b",),), {"n": Computation(Function.COUNT), "s": Computation(Function.SUM, ("a",))}
)


def test_an_aggregate_is_pushed_only_if_all_of_it_is_there() -> None:
    assert plan(WHOLE, eq("a"), aggregate=COUNT, allow_scan=False).aggregated
    assert plan(SPLIT, eq("a"), aggregate=COUNT, allow_scan=False).aggregated
    assert plan(WHOLE, aggregate=COUNT, allow_scan=False).aggregated
    for found in (
        plan(WHOLE, LIKE, aggregate=COUNT),
        plan(SPLIT, eq("x"), aggregate=COUNT),
        plan(SPLIT, And((eq("a"), eq("x"))), aggregate=COUNT),
        plan(WHOLE, eq("that.n"), aggregate=COUNT, joins=(JOIN,)),
        plan(WHOLE, aggregate=Aggregate((("that", "n"),), {}), joins=(JOIN,)),
        plan(route(fragment("server", *FIELDS, ttl_s=60.0)), eq("a"), aggregate=COUNT),
        plan(LISTED, eq("a"), aggregate=COUNT),
    ):
        assert not found.aggregated


def test_fields_are_those_that_are_needed_and_one_of_the_driver() -> None:
    found = plan(SPLIT, eq("x"), order=by("b"), fields=("y",), joins=(JOIN,))
    assert found.fields == ("a", "b", "x", "y")
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
        st.lists(operands, max_size=3).map(lambda some: And(tuple(some))),
        st.lists(operands, max_size=3).map(lambda some: Or(tuple(some))),
        operands.map(Not),
    ),
    max_leaves=6,
)
ORDERS = st.lists(st.builds(OrderBy, PATHS, st.booleans()), max_size=2).map(tuple)


@given(
    where=st.sampled_from((WHOLE, LISTED, SPLIT, TURNED)),
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
    """An object is found by a plan, or by its tail, exactly if the filter holds for it."""
    there = [f for f in where.fragments if f is where.anchor or f.system in capabilities]
    values = {n: v for n, v in values.items() if any(n in f.fields for f in there)}
    lookup = lookup_of("1", values)
    found = plan(where, filter_, order=order)

    def finds(one: QueryPlan | None) -> bool:
        if one is None or one.driver not in there:
            return False
        left = [
            operand
            for operand in (one.pushdown.pushed, one.residual, one.joined_filter)
            if operand is not None
        ]
        return all(holds(operand, lookup) for operand in left)

    assert finds(found) + finds(found.tail) == holds(filter_, lookup)


def test_filters_are_printed_as_they_are_sent() -> None:
    document = filter_document(And((eq("a"), Not(Or((Exists(("b",)), Between(("x",), 1, 2)))))))
    assert document == {
        "and": [{"eq": ["a", 1]}, {"not": {"or": [{"exists": "b"}, {"between": ["x", 1, 2]}]}}]
    }
