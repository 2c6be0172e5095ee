"""Pushdown of searches to PostgreSQL, and the indexes that serve them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from mediator.model.filters import (
    ID,
    And,
    Between,
    Compare,
    Comparison,
    Contains,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Or,
)
from mediator.model.query import Aggregate, OrderBy, Position
from mediator.schema.tree import MISSING
from mediator.stores.port import (
    AccessPath,
    Fragment,
    StoreRefused,
)
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.search.searches import (
    COUNT,
    LONG,
    RECORD_COUNT,
    eq,
    find_records,
    ge,
    plan_of,
)

# Pushdown


EXACT: tuple[Filter, ...] = (
    eq("n", 2**63 - 1),
    eq("text", None),
    eq("tags", None),
    Compare(Comparison.NE, ("doc",), None),
    Between(("amount",), Decimal(-1), Decimal("9" * 34)),
    In(("at",), (datetime(9999, 12, 31, tzinfo=UTC), None)),
    Like(("text",), r"50\%_%"),
    Like(ID, "%"),
    Contains(("tags",), "x"),
    Contains(("text",), ""),
    Exists(("prices", "k")),
    Compare(Comparison.EQ, ("doc", "a", "b"), 1.5),
    Compare(Comparison.LT, ("doc", "a.b"), "x"),
    Contains(("doc", "a"), "x"),
    Like(("doc", "a"), "x%"),
    Not(Or((Not(ge("n", 1)), And((eq("name", "x"), Exists(("doc", "k"))))))),
)


INEXACT: tuple[Filter, ...] = (
    eq("tags", ["x"]),
    eq("doc", {"a": 1}),
    Compare(Comparison.EQ, ("doc", "a"), [1]),
    Compare(Comparison.EQ, ("doc", "a"), 2**63),
    Compare(Comparison.LT, ("doc", "a"), True),
    Compare(Comparison.GT, ("prices", "k"), Decimal(1)),
    Like(("text",), "a\0b"),
    Contains(("text",), "\ud800"),
    eq("n", 1.0),
    eq("n", 2**63),
    Not(eq("tags", ["x"])),
)


@pytest.mark.parametrize("filter_", EXACT, ids=repr)
def test_exact_filters_are_pushed_down(
    store: PostgresStore, many: Fragment, filter_: Filter
) -> None:
    assert store.pushdown(many, filter_, ()).residual is None
    assert store.aggregates(many, filter_, Aggregate((("n",), ID), COUNT))


@pytest.mark.parametrize("filter_", INEXACT, ids=repr)
def test_inexact_filters_are_residual(
    store: PostgresStore, many: Fragment, filter_: Filter
) -> None:
    assert store.pushdown(many, filter_, ()).pushed is None
    assert not store.aggregates(many, filter_, Aggregate((), COUNT))
    split = store.pushdown(many, And((eq("n", 1), filter_)), ())
    assert (split.pushed, split.residual) == (eq("n", 1), filter_)


async def test_a_search_that_was_not_pushed_down_is_refused(
    store: PostgresStore, many: Fragment
) -> None:
    with pytest.raises(StoreRefused):
        await find_records(store, many, INEXACT[0])
    with pytest.raises(StoreRefused):
        await find_records(store, many, None, order=(OrderBy(("doc", "a")),))
    with pytest.raises(StoreRefused):
        await find_records(store, many, None, fields=("absent",))


@pytest.mark.parametrize(
    ("filter_", "order", "access"),
    [
        (And((eq("plain", 1), In(ID, ("a", "b")))), (), AccessPath.KEYS),
        (Compare(Comparison.EQ, ID, "a"), (), AccessPath.KEYS),
        (And((eq("plain", 1), eq("n", 1))), (), AccessPath.INDEX),
        (Like(("name",), "name0%"), (), AccessPath.INDEX),
        (eq("rare", None), (), AccessPath.INDEX),
        (None, (), AccessPath.INDEX),
        (None, (OrderBy(ID, True),), AccessPath.INDEX),
        (eq("plain", 1), (OrderBy(("n",), True),), AccessPath.INDEX),
        (Contains(("tags",), "x"), (), AccessPath.INDEX),
        (Contains(("text",), "x"), (), AccessPath.SERVER_SCAN),
        (eq("tags", None), (), AccessPath.SERVER_SCAN),
        (eq("kind", 1), (), AccessPath.INDEX),
        (None, (OrderBy(("kind",)), OrderBy(("at",))), AccessPath.INDEX),
        (None, (OrderBy(("kind",)), OrderBy(("at",), True)), AccessPath.SERVER_SCAN),
        (None, (OrderBy(("kind",)),), AccessPath.SERVER_SCAN),
        (Like(("name",), "%0"), (), AccessPath.SERVER_SCAN),
        (Not(eq("n", 1)), (), AccessPath.SERVER_SCAN),
        (Or((eq("n", 1), eq("plain", 1))), (), AccessPath.SERVER_SCAN),
        (eq("plain", 1), (OrderBy(ID),), AccessPath.SERVER_SCAN),
        (None, (OrderBy(("plain",)),), AccessPath.SERVER_SCAN),
    ],
)
def test_the_access_path_is_reported(
    store: PostgresStore,
    many: Fragment,
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    access: AccessPath,
) -> None:
    assert store.pushdown(many, filter_, order).access is access


def test_orders_by_document_members_are_not_pushed_down(
    store: PostgresStore, many: Fragment
) -> None:
    assert not store.pushdown(many, None, (OrderBy(("n",)), OrderBy(("doc", "a")))).ordered
    assert store.pushdown(many, None, (OrderBy(("n",)), OrderBy(("plain",), True))).ordered


# Indexes


def at(*path: str, value: Any) -> Compare:
    return Compare(Comparison.EQ, path, value)


AT_3900 = datetime.fromtimestamp(3900, UTC)


@pytest.mark.parametrize(
    ("filter_", "index"),
    [
        (eq("n", 7), "d.many~n"),
        (Between(("n",), 7, 9), "d.many~n"),
        (And((Compare(Comparison.LT, ("n",), 9), ge("plain", 3))), "d.many~n"),
        (In(("n",), (7, 8, 9)), "d.many~n"),
        (eq("rare", 101), "d.many~rare"),
        (eq("name", "name00007"), "d.many~name"),
        (Like(("name",), "name0000%"), "d.many~name"),
        (Like(("name",), "%0007"), None),
        (eq("text", f"00007{LONG}"), "d.many~text~"),
        (In(("text",), ("y", "z")), "d.many~text~"),
        (Like(("text",), "0000%"), "d.many~text~"),
        (ge("blob", b"\x00\x00\x0f\x9f"), "d.many~blob~"),
        (Contains(("tags",), "tag7"), "d.many~tags~elements"),
        (Contains(("tags",), f"{LONG}7"), "d.many~tags~elements"),
        (Contains(("marks",), 7), "d.many~marks~elements"),
        (And((eq("kind", 7), ge("at", AT_3900))), "d.many~kind,at"),
        (And((eq("amount", Decimal(7)), eq("label", f"00007{LONG}"))), "d.many~amount,label~"),
        (at("doc", "city", value=f"city00007{LONG}"), "d.many~doc.city~text"),
        (at("doc", "city", value=8), "d.many~doc.city~number"),
        (Between(("doc", "city"), "city00007", "city00009"), "d.many~doc.city~text"),
        (In(("doc", "city"), (f"city00007{LONG}", "y")), "d.many~doc.city~text"),
        (Like(("doc", "city"), "city0000%"), "d.many~doc.city~text"),
        (Like(("doc", "city"), "%0000%"), None),
        (In(("doc", "city"), (8, "y")), None),
        (at("doc", "city", value=True), None),
        (at("doc", "city", value=None), None),
        (at("doc", "geo", "lat", value=3.5), "d.many~doc.geo.lat~number"),
        (at("doc", "geo.lat", value=3.5), None),
        (at("doc", "it's % \\ :x $1", value=7), "d.many~doc.it's % \\ :x $1~number"),
        (at("counts", "eur", value=7), "d.many~counts.eur~number"),
        (at("counts", "usd", value=7), None),
        (Compare(Comparison.EQ, ID, "id00007"), "d.many_pkey"),
        (In(ID, ("id00007", "id00009")), "d.many_pkey"),
    ],
)
async def test_indexes_serve_filters(
    store: PostgresStore, admin: Any, many: Fragment, filter_: Filter, index: str | None
) -> None:
    plan = await plan_of(store, admin, many, filter_, (OrderBy(("plain",)),))
    access = store.pushdown(many, filter_, (OrderBy(("plain",)),)).access
    assert (access is AccessPath.SERVER_SCAN) is (index is None)
    if index is None:
        assert "Index" not in plan
    else:
        assert f'"{index}"' in plan
        assert "Seq Scan" not in plan


UP, DOWN = (OrderBy(("n",)),), (OrderBy(("n",), True),)


RARE = (OrderBy(("rare",)),)


@pytest.mark.parametrize(
    ("filter_", "order", "after"),
    [
        (None, UP, None),
        (None, DOWN, None),
        (eq("plain", 3), DOWN, None),
        (None, UP, Position((2000,), "id02000")),
        (None, DOWN, Position((2000,), "id02000")),
        (None, RARE, Position((MISSING,), "id02000")),
        (None, RARE, Position((None,), "id02000")),
        (None, (OrderBy(("rare",), True),), Position((None,), "id02000")),
        (None, (OrderBy(("text",)),), Position((f"02000{LONG}",), "id02000")),
        (eq("kind", 3), (OrderBy(("at",)),), Position((AT_3900,), "id03903")),
        (eq("kind", 3), (OrderBy(("at",), True),), None),
        (None, (OrderBy(("kind",)), OrderBy(("at",))), Position((7, AT_3900), "id03903")),
        (None, (), Position((), "id02000")),
        (None, (OrderBy(ID, True),), None),
    ],
)
async def test_indexes_serve_orders(
    store: PostgresStore,
    admin: Any,
    many: Fragment,
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    after: Position | None,
) -> None:
    plan = await plan_of(store, admin, many, filter_, order, after)
    assert "Seq Scan" not in plan
    # Subqueries with limits of their own may be sorted together.
    assert "->  Sort " not in plan or plan.count("Limit  ") == 1 + plan.count("Index Scan"), plan
    assert after is None or "Index Cond" in plan


async def test_positions_among_nulls_use_the_index(
    store: PostgresStore, admin: Any, many: Fragment
) -> None:
    """The index leads to the id itself, not to the first of all nulls."""
    plan = await plan_of(store, admin, many, None, RARE, Position((MISSING,), "id02000"))
    conditions = [line for line in plan.splitlines() if "Index Cond" in line]
    assert any("id" in line.split("IS NULL", 1)[-1] for line in conditions), plan


async def test_estimates_are_those_of_the_planner(store: PostgresStore, many: Fragment) -> None:
    """The table is analysed: numbers are exact for all records, and approximate for some."""
    assert await store.estimate(many, None, deadline_s=10.0) == RECORD_COUNT
    half = await store.estimate(many, ge("n", RECORD_COUNT // 2), deadline_s=10.0)
    assert RECORD_COUNT // 4 < half < RECORD_COUNT
    for filter_ in EXACT:
        assert store.estimates(many, filter_)
        assert await store.estimate(many, filter_, deadline_s=10.0) <= RECORD_COUNT
    assert not store.estimates(many, eq("tags", ["x"]))
    with pytest.raises(StoreRefused):
        await store.estimate(many, eq("tags", ["x"]), deadline_s=10.0)
