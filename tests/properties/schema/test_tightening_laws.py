"""Laws of tightened constraints; the oracle is the codec that decodes writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mediator.base.errors import Invalid
from mediator.schema.tightening import tightened_constraints
from mediator.schema.tree import Schema
from mediator.schema.values import Codec
from tests.properties.schema.constrained_fields import (
    integer_fields,
    numbers,
    schema_of,
    string_fields,
    words,
)

cases = st.one_of(
    st.tuples(integer_fields, integer_fields, st.none() | numbers),
    st.tuples(string_fields, string_fields, st.none() | words),
)


def accepts(schema: Schema, value: Any) -> bool:
    """Whether a create with a value is accepted; None: without the field."""
    try:
        Codec(schema.classes["c"]).decode_object({} if value is None else {"f": value})
    except Invalid:
        return False
    return True


@settings(max_examples=500)
@given(cases)
def test_a_value_that_only_the_former_schema_accepts_violates_a_tightened_constraint(
    case: tuple[dict[str, Any], dict[str, Any], Any],
) -> None:
    before, after, value = schema_of(case[0]), schema_of(case[1]), case[2]
    constraints = tightened_constraints(before, after, {"c"}).values()
    is_violated = any(constraint.is_broken_by(value) for constraint in constraints)
    if accepts(before, value) and not accepts(after, value):
        assert is_violated
    if accepts(after, value):
        assert not is_violated


def loosen(field: dict[str, Any], draw: st.DataObject) -> dict[str, Any]:
    """Return a field with some of its constraints dropped and others widened."""
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
def test_a_loosened_field_tightens_nothing(field: dict[str, Any], draw: st.DataObject) -> None:
    assert tightened_constraints(schema_of(field), schema_of(loosen(field, draw)), {"c"}) == {}
