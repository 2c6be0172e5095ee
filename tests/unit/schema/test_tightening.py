"""Constraints that a schema change tightens, and values that violate them."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.schema.parse import parse_schema
from mediator.schema.tightening import TightenedConstraint, tightened_constraints
from mediator.schema.tree import Schema

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def schema_of(**fields: Any) -> Schema:
    return parse_schema("shop", {"classes": {"things": {"fields": fields}}})


def change(before: Any, after: Any) -> list[TightenedConstraint]:
    fields = [{} if field is None else {"f": field} for field in (before, after)]
    old, new = (schema_of(**class_fields) for class_fields in fields)
    return list(tightened_constraints(old, new, {"things"}).values())


@pytest.mark.parametrize(
    ("before", "after", "constraint", "good", "bad"),
    [
        (STRING, {**STRING, "required": True}, "required", "", None),
        (INTEGER, {**INTEGER, "minimum": 3}, "minimum", 3, 2),
        ({**INTEGER, "minimum": 3}, {**INTEGER, "minimum": 4}, "minimum", 4, 3),
        (INTEGER, {**INTEGER, "maximum": 3}, "maximum", 3, 4),
        ({**INTEGER, "maximum": 3}, {**INTEGER, "maximum": 2}, "maximum", 2, 3),
        (STRING, {**STRING, "min_length": 2}, "min_length", "ab", "a"),
        ({**STRING, "min_length": 2}, {**STRING, "min_length": 3}, "min_length", "abc", "ab"),
        (STRING, {**STRING, "max_length": 2}, "max_length", "ab", "abc"),
        ({**STRING, "max_length": 3}, {**STRING, "max_length": 2}, "max_length", "ab", "abc"),
        (STRING, {**STRING, "enum": ["a"]}, "enum", "a", "b"),
        ({**STRING, "enum": ["a", "b"]}, {**STRING, "enum": ["b", "c"]}, "enum", "c", "a"),
        (STRING, {**STRING, "pattern": "^a"}, "pattern", "ab", "b"),
        ({**STRING, "pattern": "a"}, {**STRING, "pattern": "^a"}, "pattern", "ab", "ba"),
        ({"type": "binary"}, {"type": "binary", "min_length": 2}, "min_length", b"ab", b"a"),
        (
            {"type": "list", "items": "integer"},
            {"type": "list", "items": "integer", "max_length": 1},
            "max_length",
            [1],
            [1, 2],
        ),
    ],
)
def test_a_tighter_constraint_is_found_with_the_values_that_violate_it(
    before: Any, after: Any, constraint: str, good: Any, bad: Any
) -> None:
    [tightened] = change(before, after)
    assert (tightened.constraint, tightened.location) == (constraint, "/classes/things/fields/f")
    assert not tightened.is_broken_by(good)
    assert tightened.is_broken_by(bad)
    if constraint != "required":
        assert not tightened.is_broken_by(None), (
            "only `required` applies to null and missing values"
        )
        assert change(after, before) == [] or constraint in ("enum", "pattern")
    assert change(after, after) == []


def test_several_constraints_of_several_fields_are_found() -> None:
    before = schema_of(a=STRING, b=INTEGER, c=STRING)
    after = schema_of(a={**STRING, "pattern": "x", "required": True}, b={**INTEGER, "minimum": 0})
    assert set(tightened_constraints(before, after, {"things"})) == {
        ("things", "a", "pattern"),
        ("things", "a", "required"),
        ("things", "b", "minimum"),
    }


def test_existing_objects_lack_a_new_required_field() -> None:
    bound = {**INTEGER, "minimum": 1, "maximum": 2}
    assert change(None, bound) == []
    [tightened] = change(None, {**bound, "required": True, "default": 1})
    assert tightened.constraint == "required"
    assert tightened.is_broken_by(None)


def test_values_of_another_type_are_not_compared() -> None:
    assert change(STRING, {**INTEGER, "minimum": 1}) == []
    lists = {"type": "list", "items": "string"}
    assert change(lists, {**lists, "items": "integer", "max_length": 1}) == []


def test_only_the_given_classes_are_compared() -> None:
    before, after = schema_of(f=INTEGER), schema_of(f={**INTEGER, "minimum": 1})
    assert tightened_constraints(before, after, set()) == {}
    assert tightened_constraints(before, parse_schema("shop", {}), {"things"}) == {}
    assert tightened_constraints(parse_schema("shop", {}), after, {"things"}) == {}


def test_an_added_foreign_key_is_one_constraint() -> None:
    plain = {"type": "reference", "to": "things", "index": True}
    for before, after, expected in (
        ("ignore", "refuse", {("things", "f", "on_delete")}),
        ("refuse", "cascade", set()),
        ("cascade", "ignore", set()),
        (None, "refuse", set()),
    ):
        former = {} if before is None else {"f": {**plain, "on_delete": before}}
        current = schema_of(f={**plain, "on_delete": after})
        constraints = tightened_constraints(schema_of(**former), current, {"things"})
        assert constraints.keys() == expected
        assert all(constraint.to == "things" for constraint in constraints.values())
