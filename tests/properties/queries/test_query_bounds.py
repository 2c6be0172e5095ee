"""Cost bounds of queries, and of matching writes against queries; counted, never timed."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest

from mediator.base.errors import Invalid, TooCostly
from mediator.model.effects import Effect, Image
from mediator.model.evaluate import Lookup, holds, lookup_of, same_value
from mediator.model.filters import Compare, Comparison, Contains, Filter, In, Like, Not
from mediator.model.patterns import matcher
from mediator.model.query import Query
from mediator.query.budget import LONG, Budget, FilterEvaluator, Limits
from mediator.query.filter_parser import MAX_CHARACTERS, MAX_NODES, MAX_VALUES, MAX_WILDCARDS
from mediator.query.invalidation.index import QueryIndex
from mediator.query.invalidation.registered_query import (
    MAX_MATCH_COST,
    MatchBudget,
    RegisteredQuery,
    Truth,
)
from mediator.query.parser import parse_query_document
from mediator.schema.parse import parse_schema
from tests.clocks import Ticking

FIELDS = {
    "name": {"type": "string"},
    "year": {"type": "integer"},
    "tags": {"type": "set", "items": "string"},
}
SCHEMA = parse_schema("society", {"classes": {"people": {"fields": FIELDS}}})


def like(pattern: str) -> dict[str, Any]:
    return {"like": ["name", pattern]}


@pytest.mark.parametrize(
    ("many", "few"),
    [
        ([like("a_" * (MAX_WILDCARDS + 1))], [like("a_" * MAX_WILDCARDS)]),
        ([like("a")] * (MAX_WILDCARDS + 1), [like("a")] * MAX_WILDCARDS),
        ([like("a" * (MAX_CHARACTERS + 1))], [like("a" * MAX_CHARACTERS)]),
        ([{"contains": ["name", "a" * 501]}] * 2, [{"contains": ["name", "a" * 500]}] * 2),
        (
            [{"in": ["year", list(range(501))]}] * 2,
            [{"in": ["year", list(range(MAX_VALUES // 2))]}] * 2,
        ),
        ([{"eq": ["year", 1]}] * MAX_NODES, [{"eq": ["year", 1]}] * (MAX_NODES - 1)),
    ],
)
def test_the_size_of_a_filter_is_bounded(many: list[Any], few: list[Any]) -> None:
    with pytest.raises(Invalid) as refused:
        parse_query_document({"filter": {"or": many}}, SCHEMA, "people")
    assert refused.value.locations[0].pointer.startswith("/filter/or/")
    assert parse_query_document({"filter": {"or": few}}, SCHEMA, "people").query.filter is not None


def test_hostile_patterns_match_literally() -> None:
    text = "a" * 100_000
    assert not matcher("%a" * 15 + "_b")(text)
    assert not matcher("%a" + "_" * 30 + "b%")(text)
    assert matcher("%" + "a" * 900 + "_%")(text)


@pytest.mark.parametrize("value", [1, True, 1.0, "1", None, [1], {"k": 1}, 0.5, [True]])
def test_in_matches_equal_values_only(value: Any) -> None:
    values = (1, "x", None, [1.0], {"k": True})
    expected = any(same_value(value, candidate) for candidate in values)
    assert holds(In(("x",), values), lookup_of("id", {"x": value})) is expected
    assert not holds(In(("y",), values), lookup_of("id", {"x": value}))


def _lookup(name: str) -> Lookup:
    return lookup_of("id", {"name": name})


async def _ticks_during(filter_: Filter, names: list[str]) -> tuple[int, list[str]]:
    """Filter objects; return the loop iterations meanwhile, and the matches."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticker = asyncio.create_task(tick())
    matches = await FilterEvaluator(filter_, Budget(Limits(), Ticking())).select(names, _lookup)
    ticker.cancel()
    return ticks, matches


async def test_the_event_loop_runs_while_objects_are_filtered() -> None:
    names = ["ab", "b"] * 500
    ticks, matches = await _ticks_during(Like(("name",), "a%"), names)
    assert matches == ["ab"] * 500
    # Each object takes two readings of the clock, and so does a slice.
    assert ticks >= len(names) / 2


async def test_a_long_text_is_searched_in_a_thread() -> None:
    loop_thread, threads = threading.get_ident(), []

    def lookup(name: str) -> Lookup:
        def at(_: tuple[str, ...]) -> str:
            threads.append(threading.get_ident())
            return name

        return at

    for filter_ in (Like(("name",), "%b"), Not(Contains(("name",), "c"))):
        evaluator = FilterEvaluator(filter_, Budget(Limits(), Ticking()))
        for name, in_thread in (("ab", False), ("a" * LONG + "b", True)):
            assert await evaluator.select([name], lookup) == [name]
            assert (threads[-1] != loop_thread) is in_thread


async def test_the_time_limit_of_a_query_is_checked_at_each_object() -> None:
    clock = Ticking()
    budget = Budget(Limits(seconds=0.1), clock)
    with pytest.raises(TooCostly):
        await FilterEvaluator(Like(("name",), "a%"), budget).select(["ab"] * 1_000, _lookup)
    assert clock.readings < 150


ALL = frozenset({"name", "year"})


def _image(name: str, year: int = 1) -> Image:
    return Image("a", ALL, {"name": name, "year": year})


def _index(filters: list[Filter]) -> QueryIndex:
    index = QueryIndex()
    for number, filter_ in enumerate(filters):
        index.put(str(number), RegisteredQuery(Query("d", "c", filter=filter_)))
    return index


def test_beyond_the_match_budget_of_a_write_all_results_count_as_changed() -> None:
    uncovered: list[Filter] = [Like(("name",), f"%x{n}_{n}%") for n in range(90)]
    index = _index(uncovered)
    short, long_ = (Effect(_image(text), _image(text + "y")) for text in ("a", "a" * 100_000))
    assert index.changed([short]) == set()
    assert index.changed([long_]) == {str(n) for n in range(90)}
    assert index.changed([short], MatchBudget(0)) == {str(n) for n in range(90)}


def test_the_match_cost_of_a_write_counts_all_of_its_objects() -> None:
    index = _index([Compare(Comparison.EQ, ("year",), 2)])
    effect = Effect(_image("a", 2), _image("a", 3))
    assert index.changed([effect] * (MAX_MATCH_COST // 4)) == {"0"}
    unchanged = Effect(_image("a", 2), _image("a", 2), frozenset({"name"}))
    negated = _index([Not(Compare(Comparison.EQ, ("year",), 2))])
    assert negated.changed([unchanged] * 10) == set()
    assert negated.changed([unchanged] * MAX_MATCH_COST) == {"0"}


def test_an_object_whose_filtered_values_stay_is_tested_once() -> None:
    tested: list[Image] = []
    query = RegisteredQuery(Query("d", "c", filter=Like(("name",), "%x%")))

    def test(image: Image) -> Truth:
        tested.append(image)
        return Truth.FALSE

    query.__dict__["test"] = test
    assert not query.changes(Effect(_image("a", 1), _image("a", 2)))
    assert len(tested) == 1
    assert not query.changes(Effect(_image("a"), _image("b")))
    assert len(tested) == 3
    partial_image = Image("a", frozenset({"year"}), {"year": 1})
    assert not query.changes(Effect(partial_image, partial_image))
    assert len(tested) == 5


def test_patterns_agree_with_regular_expressions_on_any_character() -> None:
    texts = ["", "\0", "a\nb", "\u2028", "\U0010ffff", "é", "e\u0301", "\x85", "\ud7ff\ue000"]
    for pattern in ("_", "__", "%", "a_b", "%\n%", "\0", "é", "%\u0301", "_%_"):
        expression = pattern.replace("%", ".*").replace("_", ".")
        for text in texts:
            expected = re.fullmatch(expression, text, re.DOTALL) is not None
            assert matcher(pattern)(text) is expected, (pattern, text)
