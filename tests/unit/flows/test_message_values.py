"""The sizes of the values of a message, and of filled templates."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import Invalid
from mediator.flows.message_check import check_message
from mediator.flows.message_values import (
    MAX_BYTES,
    MAX_DEPTH,
    MessageValues,
    SizedValue,
    depth_of,
    measure,
)
from mediator.flows.templates import fill
from tests.unit.flows.plans import flow

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text()
)


def containers(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
    )


ASSIGN = {"op": "assign", "to": "b", "value": 1}
VALUES = containers(SCALARS)
REFERENCES = st.sampled_from(["/a", "/b", "/b/0"]).map(lambda pointer: {"$": pointer})


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def levels_of(value: Any) -> int:
    """Return the depth, by plain recursion."""
    if isinstance(value, dict | list):
        members = value.values() if isinstance(value, dict) else value
        return 1 + max(map(levels_of, members), default=0)
    return 0


@given(VALUES, VALUES, containers(SCALARS | REFERENCES))
def test_a_filled_template_is_as_large_as_its_json(one: Any, other: Any, template: Any) -> None:
    values = MessageValues.of({"a": one, "b": [other]})
    filled = fill(template, values)
    assert filled.size == len(orjson.dumps(filled.value))
    assert filled.depth == levels_of(filled.value) == depth_of(filled.value)


@given(VALUES, VALUES)
def test_replaced_values_make_room(one: Any, other: Any) -> None:
    values = MessageValues.of({"a": one})
    room = SizedValue("", MAX_BYTES - measure(other, "/a").size, 0)
    values.put("a", measure(other, "/a"))
    values.put("b", room)
    assert values["a"] == other
    with pytest.raises(Invalid):
        values.put("c", measure(0, "/c"))
    assert set(values) == {"a", "b"}


@pytest.mark.parametrize("value", ["x" * MAX_BYTES, nested(MAX_DEPTH + 1), nested(500)])
def test_a_value_beyond_a_bound_is_refused_with_its_location(value: Any) -> None:
    with pytest.raises(Invalid) as error:
        MessageValues.of({"a": value})
    assert [location.pointer for location in error.value.locations] == ["/a"]
    assert measure(nested(MAX_DEPTH), "/a").depth == MAX_DEPTH


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ([{"$": "/a"}] * 3, "x" * (MAX_BYTES // 2)),
        ([{"$": "/a/0/0"}] * 3, [["x" * (MAX_BYTES // 2)]]),
        ([{"$": "/a"}], nested(MAX_DEPTH)),
        ([{"$": "/a/0"}], [nested(MAX_DEPTH - 1), 0]),
    ],
)
def test_a_template_that_would_become_too_large_is_refused(template: Any, value: Any) -> None:
    values = MessageValues.of({"a": value})
    fill(template[0], values)
    with pytest.raises(Invalid):
        fill([template], values)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 253, 1_000])
def test_a_message_that_is_too_deep_is_refused_with_its_location(levels: int) -> None:
    plan = flow([{"op": "receive", "attributes": {"a": "json"}}, ASSIGN]).plan
    with pytest.raises(Invalid) as error:
        check_message(plan, {"a": nested(levels)}, "/messages/7")
    assert [location.pointer for location in error.value.locations] == ["/messages/7/a"]
    assert check_message(plan, {"a": nested(MAX_DEPTH)}, "")


def test_a_case_that_is_too_deep_is_refused_with_its_location() -> None:
    case = {"equals": [1, nested(300)], "operators": []}
    switch = {"op": "switch", "on": {"$": "/a"}, "cases": [case], "default": []}
    with pytest.raises(Invalid) as error:
        flow([{"op": "receive", "attributes": {"a": "json"}}, switch])
    assert [location.pointer for location in error.value.locations] == ["/plan/1/cases/0/equals/1"]
