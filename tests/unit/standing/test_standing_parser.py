"""Parsing standing queries: every mistake is named with its location."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from mediator.base.errors import Invalid
from mediator.standing.parser import MAX_RELATIONS, parse_workload
from tests.unit.standing.papers_queries import EXAMPLE_1, document

_Q1 = "/queries/q1"
MISTAKES: dict[str, tuple[str, Any, str, str]] = {
    "cross product": (f"{_Q1}/predicates", [["R.a", "S.a"]], f"{_Q1}/predicates", "cross product"),
    "unknown stream": (f"{_Q1}/relations/0", "Z", f"{_Q1}/relations/0", "there is no stream Z"),
    "window of zero": (f"{_Q1}/window_s", 0, f"{_Q1}/window_s", "above 0"),
    "window without end": (f"{_Q1}/window_s", 1e9, f"{_Q1}/window_s", "at most"),
    "window of true": (f"{_Q1}/window_s", True, f"{_Q1}/window_s", "a number"),
    "missing attribute": (
        f"{_Q1}/predicates/0/1",
        "S.z",
        f"{_Q1}/predicates/0/1",
        "S has no attribute z",
    ),
    "relation of another query": (
        f"{_Q1}/predicates/0/0",
        "U.c",
        f"{_Q1}/predicates/0/0",
        "U is no relation of this query",
    ),
    "no pair": (f"{_Q1}/predicates/0", ["R.a"], f"{_Q1}/predicates/0", "a pair of attributes"),
    "no attribute": (f"{_Q1}/predicates/0/0", 7, f"{_Q1}/predicates/0/0", "an attribute"),
    "one relation twice": (f"{_Q1}/relations/1", "R", f"{_Q1}/relations/1", "named twice"),
    "within one relation": (
        f"{_Q1}/predicates/0",
        ["S.a", "S.b"],
        f"{_Q1}/predicates/0",
        "two relations",
    ),
    "one relation": (f"{_Q1}/relations", ["R"], f"{_Q1}/relations", "2 to"),
    "no queries": ("/queries", {}, "/queries", "at least one"),
    "rate of zero": ("/streams/R/rate", 0, "/streams/R/rate", "above 0"),
    "attribute twice": ("/streams/S/attributes", ["a", "a"], "/streams/S/attributes/1", "twice"),
    "no parallelism": ("/parallelism", 0, "/parallelism", "from 1"),
    "negative size": ("/sizes/0/size", -1, "/sizes/0/size", "0 or more"),
    "unknown member": ("/colour", "red", "/colour", "is not known here"),
}


def with_value(pointer: str, value: Any) -> dict[str, Any]:
    copy = deepcopy(EXAMPLE_1)
    *path, last = pointer.removeprefix("/").split("/")
    inner: Any = copy
    for step in path:
        inner = inner[int(step) if isinstance(inner, list) else step]
    inner[int(last) if isinstance(inner, list) else last] = value
    return copy


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_with_its_location(name: str) -> None:
    path, value, pointer, detail = MISTAKES[name]
    with pytest.raises(Invalid) as error:
        parse_workload(with_value(path, value))
    details = {location.pointer: location.detail for location in error.value.locations}
    assert detail in details[pointer]


@pytest.mark.parametrize("value", [None, [], "x", {"streams": 3, "queries": []}, {"streams": {}}])
def test_an_invalid_workload_is_refused(value: Any) -> None:
    with pytest.raises(Invalid):
        parse_workload(value)


def test_a_query_of_many_relations_is_refused() -> None:
    many = document({f"R{number}": "a" for number in range(MAX_RELATIONS + 1)})
    with pytest.raises(Invalid, match="elements"):
        parse_workload(many)


def test_queries_of_the_same_join_are_one() -> None:
    twice = with_value("/queries/q2", EXAMPLE_1["queries"]["q1"])
    assert len(parse_workload(twice).joins) == 1


def test_joins_of_different_windows_are_different() -> None:
    other = with_value("/queries/q2", {**EXAMPLE_1["queries"]["q1"], "window_s": 2})
    assert len(parse_workload(other).joins) == 2
