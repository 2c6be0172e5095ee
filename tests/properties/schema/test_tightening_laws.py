"""Laws of tightened constraints; the oracle is what writes are decoded by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from mediator.base.errors import Invalid
from mediator.schema.parse import parse_schema
from mediator.schema.tightening import tightened
from mediator.schema.tree import Schema
from mediator.schema.values import Codec

WORDS: Final = ("a", "ab", "abc", "b")
PATTERNS: Final = ("a", "^a", "b$", "^ab?$")

numbers = st.integers(-3, 3)
lengths = st.integers(1, 4)
words = st.sampled_from(WORDS)


def _ordered(members: dict[str, Any], low: str, high: str) -> bool:
    return low not in members or high not in members or members[low] <= members[high]


flags = {"required": st.booleans()}
integer_fields = st.fixed_dictionaries(
    {"type": st.just("integer")}, optional={**flags, "minimum": numbers, "maximum": numbers}
).filter(lambda members: _ordered(members, "minimum", "maximum"))
string_fields = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        **flags,
        "min_length": lengths,
        "max_length": lengths,
        "enum": st.lists(words, min_size=1, max_size=3, unique=True),
        "pattern": st.sampled_from(PATTERNS),
    },
).filter(lambda members: _ordered(members, "min_length", "max_length"))
cases = st.one_of(
    st.tuples(integer_fields, integer_fields, st.none() | numbers),
    st.tuples(string_fields, string_fields, st.none() | words),
)


def schema_of(field: dict[str, Any]) -> Schema:
    return parse_schema("db", {"classes": {"c": {"fields": {"f": field}}}})


def accepts(schema: Schema, value: Any) -> bool:
    """Whether a create may have a value, with which a missing one counts as null."""
    try:
        Codec(schema.classes["c"]).decode_object({} if value is None else {"f": value})
    except Invalid:
        return False
    return True


@settings(max_examples=500)
@given(cases)
def test_a_value_that_only_the_former_schema_accepts_breaks_a_tightened_constraint(
    case: tuple[dict[str, Any], dict[str, Any], Any],
) -> None:
    before, after, value = schema_of(case[0]), schema_of(case[1]), case[2]
    found = tightened(before, after, {"c"}).values()
    broken = any(each.is_broken_by(value) for each in found)
    if accepts(before, value) and not accepts(after, value):
        assert broken
    if accepts(after, value):
        assert not broken


def loosened(field: dict[str, Any], draw: st.DataObject) -> dict[str, Any]:
    """Return a field with some of its constraints dropped, and the others wider."""
    wider: dict[str, Callable[[Any], Any]] = {
        "minimum": lambda bound: bound - 1,
        "maximum": lambda bound: bound + 1,
        "min_length": lambda bound: max(1, bound - 1),
        "max_length": lambda bound: bound + 1,
        "enum": lambda members: [*members, "more"],
    }
    return {
        name: wider[name](value) if name in wider and draw.draw(st.booleans()) else value
        for name, value in field.items()
        if name == "type" or draw.draw(st.booleans())
    }


@given(integer_fields | string_fields, st.data())
def test_what_only_loosens_tightens_nothing(field: dict[str, Any], draw: st.DataObject) -> None:
    assert tightened(schema_of(field), schema_of(loosened(field, draw)), {"c"}) == {}
