"""Planning totals: which system counts or estimates, and which queries are refused."""

from __future__ import annotations

from typing import Any

from mediator.model.filters import Filter
from mediator.model.query import CountMode
from mediator.query.planner import QueryPlan
from mediator.routing.model import ClassRoute
from tests.unit.operations.test_query_planner import (
    FIELDS,
    INDEXED,
    JOIN,
    REVERSED,
    SPLIT,
    WHOLE,
    eq,
    fragment,
    order_by,
    plan,
    refusal,
    route,
)


def total_of(where: ClassRoute, filter_: Filter | None = None, **members: Any) -> QueryPlan:
    members = {"count": CountMode.EXACT, "allow_scan": False, **members}
    total = plan(where, filter_, **members).total
    assert total is not None
    return total


def test_a_total_is_counted_by_the_system_that_knows_which_objects_exist() -> None:
    assert plan(WHOLE).total is None
    assert total_of(WHOLE).aggregated
    assert total_of(SPLIT, eq("a")).aggregated
    elsewhere = total_of(REVERSED, eq("a"))
    assert elsewhere.driver is not REVERSED.anchor
    assert not elsewhere.aggregated
    assert elsewhere.fields == ("a", "x")


def test_a_total_has_no_order_and_only_joins_that_its_filter_needs() -> None:
    options = {"joins": (JOIN,), "order": order_by("y"), "allow_scan": True}
    unneeded = total_of(INDEXED, eq("a"), **options).query
    assert (unneeded.joins, unneeded.order) == ((), ())
    assert total_of(INDEXED, eq("that.n"), **options).query.joins == (JOIN,)


def test_a_total_is_refused_like_a_query_that_reads_as_much() -> None:
    unfiltered = refusal(INDEXED, count=CountMode.EXACT)
    assert [location.pointer for location in unfiltered.locations] == ["/count"]
    filtered = refusal(INDEXED, eq("y"), count=CountMode.EXACT)
    assert [location.pointer for location in filtered.locations] == ["/filter"]
    assert not total_of(INDEXED, allow_scan=True).aggregated


def test_a_total_is_counted_if_the_system_cannot_estimate_it() -> None:
    expiring = route(fragment("server", *FIELDS, ttl_s=60.0))
    for where in (WHOLE, SPLIT, expiring):
        assert total_of(where, count=CountMode.ESTIMATED).estimated
        assert not plan(where, count=CountMode.ESTIMATED).estimated
    for where in (WHOLE, SPLIT):
        total = total_of(where, eq("a"), count=CountMode.ESTIMATED)
        assert (total.estimated, total.aggregated) == (False, True)
    assert not total_of(WHOLE).estimated
