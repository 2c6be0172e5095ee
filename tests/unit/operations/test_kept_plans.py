"""Caches of plans and statements stay within their bounds of memory, however large queries are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import pytest

from mediator.base.bounded_cache import MAX_BYTES
from mediator.model.filters import Compare, Comparison, Filter, In
from mediator.model.query import Aggregate, OrderBy, Position, Query, ReverseJoin
from mediator.query.planner import make_plan
from mediator.routing.model import ClassRoute
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, SystemConfig
from mediator.stores.postgres.search.predicates import Predicate
from mediator.stores.postgres.search.statement import OrderLevel, SearchShape
from mediator.stores.postgres.statements import Statements
from mediator.stores.redis.layout import Layout
from mediator.stores.redis.search.plan import choose
from tests.unit.operations.test_query_planner import STORES

CHARACTERS = 100_000
QUERIES = 200

FIELDS = {
    "a": Field("a", FieldType.STRING, index=True),
    "b": Field("b", FieldType.DOCUMENT),
}
FRAGMENT = Fragment("server", "db", "things", FIELDS, {"server": ("a", "b")})
ROUTE = ClassRoute(ClassSchema("things", FIELDS), 1, (FRAGMENT,))
LAYOUT = Layout(FRAGMENT, SystemConfig("redis", "redis", "redis://unused"))


class Text(str):
    """A string that a weak reference can count while it is cached."""

    __slots__ = ("__weakref__",)


def equal(text: str) -> Filter:
    return Compare(Comparison.EQ, ("a",), text)


def plan(query: Query) -> Any:
    return make_plan(query, ROUTE, STORES.__getitem__, lambda _: ROUTE)


def query(**members: Any) -> Query:
    return Query("db", "things", **{"allow_scan": True, **members})


def filtered(text: str) -> None:
    plan(query(filter=equal(text)))


def in_list(text: str) -> None:
    plan(query(filter=In(("a",), (text,))))


def paged(text: str) -> None:
    plan(query(filter=equal("x"), order=(OrderBy(("a",)),), after=Position((text,), "x")))


def having(text: str) -> None:
    plan(query(aggregate=Aggregate((("a",),), {}, equal(text))))


def joined(text: str) -> None:
    plan(query(reverse_joins=(ReverseJoin("others", "things", "a", equal(text)),)))


def ordered(text: str) -> None:
    plan(query(order=(OrderBy(("b", text)),)))


def planned_for_redis(text: str) -> None:
    choose(LAYOUT, equal(text), ())


@pytest.mark.parametrize(
    "cache_plan", [filtered, in_list, paged, having, joined, ordered, planned_for_redis]
)
def test_cached_plans_of_large_queries_stay_within_a_bound(
    cache_plan: Callable[[str], None],
) -> None:
    live_texts: WeakSet[Text] = WeakSet()
    for number in range(QUERIES):
        text = Text(f"{number:06}" * (CHARACTERS // 6))
        live_texts.add(text)
        cache_plan(text)
        del text
        assert sum(map(len, live_texts)) <= MAX_BYTES


def test_cached_statements_of_large_queries_stay_within_a_bound() -> None:
    statements = Statements("unused")
    first = shape_of("first")
    statement = statements.search(first)
    assert statements.search(first) is statement
    for number in range(QUERIES):
        statements.search(shape_of(f"{number:06}" * (CHARACTERS // 6)))
    assert statements.search(first) is not statement


def shape_of(key: str) -> SearchShape:
    """Return the shape of a search by an indexed path within a document."""
    predicate = Predicate("eq", "b", keys=1, kind="text", path=(key,))
    return SearchShape(FRAGMENT, predicate, (OrderLevel("id", False),), None, ("a",))


def test_plans_distinguish_equal_constants_of_different_types() -> None:
    for value in (1, True, 1.0):
        condition = Compare(Comparison.EQ, ("b", "k"), value)
        query_plan = plan(query(reverse_joins=(ReverseJoin("others", "things", "a", condition),)))
        [join] = query_plan.query.reverse_joins
        assert join.filter is condition
