"""Fields with constraints, and values that can violate them."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema

__all__ = ["integer_fields", "numbers", "schema_of", "string_fields", "words"]

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


def schema_of(field: dict[str, Any]) -> Schema:
    return parse_schema("db", {"classes": {"c": {"fields": {"f": field}}}})
