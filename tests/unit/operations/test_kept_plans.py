"""What is computed from queries is kept within a bound of memory, however large they are."""

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
PLACED = Fragment("server", "db", "things", FIELDS, {"server": ("a", "b")})
ROUTE = ClassRoute(ClassSchema("things", FIELDS), 1, (PLACED,))
LAYOUT = Layout(PLACED, SystemConfig("redis", "redis", "redis://unused"))


class Text(str):
    """A text that can be counted as long as it is kept."""

    __slots__ = ("__weakref__",)


def equal(text: str) -> Filter:
    return Compare(Comparison.EQ, ("a",), text)


def plan(query: Query) -> Any:
    return make_plan(query, ROUTE, STORES.__getitem__, lambda _: ROUTE)


def query(**members: Any) -> Query:
    return Query("db", "things", **{"allow_scan": True, **members})


def filtered(text: str) -> None:
    plan(query(filter=equal(text)))


def among(text: str) -> None:
    plan(query(filter=In(("a",), (text,))))


def paged(text: str) -> None:
    plan(query(filter=equal("x"), order=(OrderBy(("a",)),), after=Position((text,), "x")))


def having(text: str) -> None:
    plan(query(aggregate=Aggregate((("a",),), {}, equal(text))))


def joined(text: str) -> None:
    plan(query(reverse_joins=(ReverseJoin("others", "things", "a", equal(text)),)))


def ordered(text: str) -> None:
    plan(query(order=(OrderBy(("b", text)),)))


def redis_chosen(text: str) -> None:
    choose(LAYOUT, equal(text), ())


@pytest.mark.parametrize("use", [filtered, among, paged, having, joined, ordered, redis_chosen])
def test_large_queries_are_kept_within_a_bound(use: Callable[[str], None]) -> None:
    alive: WeakSet[Text] = WeakSet()
    for number in range(QUERIES):
        text = Text(f"{number:06}" * (CHARACTERS // 6))
        alive.add(text)
        use(text)
        del text
        assert sum(map(len, alive)) <= MAX_BYTES


def test_large_statements_are_kept_within_a_bound() -> None:
    statements = Statements("unused")
    first = shape_of("first")
    kept = statements.search(first)
    assert statements.search(first) is kept
    for number in range(QUERIES):
        statements.search(shape_of(f"{number:06}" * (CHARACTERS // 6)))
    assert statements.search(first) is not kept


def shape_of(key: str) -> SearchShape:
    """Return the shape of a search along an index of what is within a document."""
    is_equal = Predicate("eq", "b", keys=1, kind="text", path=(key,))
    return SearchShape(PLACED, is_equal, (OrderLevel("id", False),), None, ("a",))


def test_constants_of_joined_lists_that_are_equal_are_distinguished() -> None:
    for value in (1, True, 1.0):
        is_it = Compare(Comparison.EQ, ("b", "k"), value)
        found = plan(query(reverse_joins=(ReverseJoin("others", "things", "a", is_it),)))
        [shown] = found.query.reverse_joins
        assert shown.filter is is_it
