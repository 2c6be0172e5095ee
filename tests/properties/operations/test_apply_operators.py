"""Laws and examples of the operators' reference semantics."""

from __future__ import annotations

import math
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall, OperatorFailure
from mediator.schema.tree import MISSING, Field
from mediator.schema.types import FieldType
from tests.properties.queries.things import CODEC, SCALAR_VALUES, THINGS, integers, names, values_of

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
INTEGER = THINGS.fields["integer"]
PAIRS = [
    (name, operator)
    for name, field in THINGS.fields.items()
    for operator in Operator
    if field.type in APPLICABLE[operator] and operator not in {Operator.SET, Operator.UNSET}
]


def arguments(name: str, operator: Operator) -> st.SearchStrategy[Any]:
    field = THINGS.fields[name]
    if operator in {Operator.POP, Operator.SHIFT, Operator.NOW}:
        return st.just(value=True)
    if operator is Operator.REMOVE and field.type is FieldType.MAP:
        return names
    if operator is Operator.PUT or field.items is None:
        return values_of(name)
    return SCALAR_VALUES[field.items]


def apply(field: Field, value: Any, operator: Operator, argument: Any) -> Any:
    return apply_operator(field, value, OperatorCall(field.name, operator, argument), NOW)


cases = st.sampled_from(PAIRS).flatmap(
    lambda pair: st.tuples(
        st.just(pair), st.sampled_from([MISSING, None]) | values_of(pair[0]), arguments(*pair)
    )
)


@given(cases)
def test_results_are_values_of_the_field_and_inputs_are_unchanged(case: Any) -> None:
    (name, operator), value, argument = case
    before = deepcopy((value, argument)) if value is not MISSING else None
    failure: OperatorFailure | None = None
    try:
        result = apply(THINGS.fields[name], value, operator, argument)
    except OperatorFailed as error:
        result, failure = MISSING, error.failure
    assert failure in {None, OperatorFailure(name, "overflow")}
    if result is not MISSING:
        decoded = CODEC.decode_object(CODEC.encode({name: result}))[name]
        assert decoded == result
        assert type(decoded) is type(result)
    if before is not None:
        assert (value, argument) == before


@given(cases)
def test_null_counts_as_missing(case: Any) -> None:
    (name, operator), _, argument = case
    field = THINGS.fields[name]
    results = [apply(field, value, operator, argument) for value in (MISSING, None)]
    if operator in {Operator.POP, Operator.SHIFT, Operator.REMOVE}:
        assert results == [MISSING, None]
    else:
        assert results[0] == results[1]


@given(integers, integers)
def test_integers_are_exact_or_refused(value: int, argument: int) -> None:
    for operator, exact in ((Operator.INC, value + argument), (Operator.MUL, value * argument)):
        if -(2**63) <= exact < 2**63:
            assert apply(INTEGER, value, operator, argument) == exact
        else:
            with pytest.raises(OperatorFailed):
                apply(INTEGER, value, operator, argument)


@given(integers, integers)
def test_bits_are_those_of_64_bit_twos_complement(value: int, argument: int) -> None:
    bits = [number & (2**64 - 1) for number in (value, argument)]
    expected = {
        Operator.BIT_AND: bits[0] & bits[1],
        Operator.BIT_OR: bits[0] | bits[1],
        Operator.BIT_XOR: bits[0] ^ bits[1],
    }
    for operator, pattern in expected.items():
        assert apply(INTEGER, value, operator, argument) & (2**64 - 1) == pattern


@given(st.data(), st.sampled_from(["integer", "float", "decimal", "timestamp"]))
def test_min_and_max_choose_one_of_the_two_and_are_idempotent(
    data: st.DataObject, name: str
) -> None:
    field = THINGS.fields[name]
    value, argument = data.draw(values_of(name)), data.draw(values_of(name))
    minimum = apply(field, value, Operator.MIN, argument)
    maximum = apply(field, value, Operator.MAX, argument)
    assert sorted([value, argument]) == [minimum, maximum]
    assert apply(field, minimum, Operator.MIN, argument) == minimum
    assert apply(field, MISSING, Operator.MIN, argument) == argument


@given(st.data(), st.sampled_from(["list_integer", "list_document"]))
def test_a_pushed_element_is_popped(data: st.DataObject, name: str) -> None:
    field = THINGS.fields[name]
    value, item = data.draw(values_of(name)), data.draw(arguments(name, Operator.PUSH))
    appended = apply(field, value, Operator.PUSH, item)
    assert appended[-1] == item
    assert apply(field, appended, Operator.POP, argument=True) == value
    prepended = apply(field, value, Operator.PUSH_FRONT, item)
    assert prepended[0] == item
    assert apply(field, prepended, Operator.SHIFT, argument=True) == value


@given(st.data(), st.sampled_from(["set_string", "set_decimal", "set_timestamp"]))
def test_a_set_has_an_element_once_until_it_is_removed(data: st.DataObject, name: str) -> None:
    field = THINGS.fields[name]
    value, item = data.draw(values_of(name)), data.draw(arguments(name, Operator.ADD_TO_SET))
    added = apply(field, value, Operator.ADD_TO_SET, item)
    assert added == sorted({*value, item})
    assert apply(field, added, Operator.ADD_TO_SET, item) == added
    assert apply(field, added, Operator.REMOVE, item) == [e for e in value if e != item]


@given(values_of("decimal"), values_of("decimal"))
def test_decimals_are_exact_or_refused(value: Decimal, argument: Decimal) -> None:
    assume(abs(value.adjusted() - argument.adjusted()) < 60)
    try:
        result = apply(THINGS.fields["decimal"], value, Operator.INC, argument)
    except OperatorFailed:
        return
    assert Fraction(result) == Fraction(value) + Fraction(argument)


@pytest.mark.parametrize(
    ("name", "value", "operator", "argument", "result"),
    [
        ("integer", MISSING, Operator.INC, 5, 5),
        ("integer", MISSING, Operator.MUL, 5, 0),
        ("integer", None, Operator.MIN, 5, 5),
        ("integer", MISSING, Operator.BIT_AND, -1, 0),
        ("integer", MISSING, Operator.BIT_XOR, -1, -1),
        ("integer", 2**63 - 1, Operator.BIT_XOR, -1, -(2**63)),
        ("float", 0.0, Operator.MUL, -1.0, 0.0),
        ("float", 0.1, Operator.INC, 0.2, 0.1 + 0.2),
        ("decimal", Decimal("0.1"), Operator.INC, Decimal("0.2"), Decimal("0.3")),
        ("decimal", Decimal("1.5"), Operator.INC, Decimal("-1.5"), Decimal(0)),
        ("decimal", Decimal("0.5"), Operator.MUL, Decimal(2), Decimal(1)),
        ("timestamp", MISSING, Operator.NOW, True, NOW),
        ("list_integer", MISSING, Operator.PUSH, 1, [1]),
        ("list_integer", MISSING, Operator.POP, True, MISSING),
        ("list_integer", None, Operator.SHIFT, True, None),
        ("list_integer", [], Operator.POP, True, []),
        ("list_integer", [1], Operator.POP, True, []),
        ("list_integer", [1, 2, 1], Operator.REMOVE, 1, [2]),
        ("list_document", [{"a": 1}, {"a": True}], Operator.REMOVE, {"a": True}, [{"a": 1}]),
        ("list_document", [{"a": 1, "b": 2}], Operator.REMOVE, {"b": 2, "a": 1}, []),
        ("set_string", MISSING, Operator.REMOVE, "a", MISSING),
        ("set_string", ["b"], Operator.ADD_TO_SET, "a", ["a", "b"]),
        ("map_integer", MISSING, Operator.PUT, {"a": 1}, {"a": 1}),
        ("map_integer", {"a": 1, "b": 2}, Operator.PUT, {"b": 3}, {"a": 1, "b": 3}),
        ("map_integer", {"a": 1, "b": 2}, Operator.REMOVE, "b", {"a": 1}),
    ],
)
def test_operators(name: str, value: Any, operator: Operator, argument: Any, result: Any) -> None:
    assert repr(apply(THINGS.fields[name], value, operator, argument)) == repr(result)


@pytest.mark.parametrize(
    ("name", "value", "operator", "argument"),
    [
        ("integer", 2**63 - 1, Operator.INC, 1),
        ("integer", -(2**63), Operator.MUL, -1),
        ("float", 1e308, Operator.INC, 1e308),
        ("float", 1e200, Operator.MUL, -1e200),
        ("decimal", Decimal(10**33), Operator.INC, Decimal("0.1")),
        ("decimal", Decimal("1E6144"), Operator.MUL, Decimal(10)),
        ("decimal", Decimal("1E-6143"), Operator.MUL, Decimal("0.1")),
    ],
)
def test_results_beyond_the_type_are_refused(
    name: str, value: Any, operator: Operator, argument: Any
) -> None:
    with pytest.raises(OperatorFailed, match=f"{name}: overflow"):
        apply(THINGS.fields[name], value, operator, argument)


@pytest.mark.parametrize(
    ("type_", "value", "operator", "argument"),
    [
        (FieldType.LIST, [1, 2], Operator.PUSH, 3),
        (FieldType.LIST, [1, 2], Operator.PUSH_FRONT, 1),
        (FieldType.SET, [1, 2], Operator.ADD_TO_SET, 3),
        (FieldType.MAP, {"a": 1, "b": 2}, Operator.PUT, {"c": 3}),
    ],
)
def test_results_that_are_too_long_are_refused(
    type_: FieldType, value: Any, operator: Operator, argument: Any
) -> None:
    field = Field("f", type_, items=FieldType.INTEGER, max_length=2)
    with pytest.raises(OperatorFailed, match="f: too_long"):
        apply(field, value, operator, argument)


@pytest.mark.parametrize(
    ("value", "operator", "argument", "reason"),
    [
        (3, Operator.INC, -4, "below_minimum"),
        (8, Operator.INC, 3, "above_maximum"),
        (3, Operator.MUL, -1, "below_minimum"),
        (3, Operator.MIN, -1, "below_minimum"),
        (3, Operator.MAX, 11, "above_maximum"),
        (8, Operator.BIT_OR, 7, "above_maximum"),
        (None, Operator.INC, -1, "below_minimum"),
        (11, Operator.INC, 0, "above_maximum"),
    ],
)
def test_results_beyond_the_bounds_are_refused(
    value: Any, operator: Operator, argument: int, reason: str
) -> None:
    field = Field("f", FieldType.INTEGER, minimum=0, maximum=10)
    with pytest.raises(OperatorFailed, match=f"f: {reason}"):
        apply(field, value, operator, argument)
    assert apply(field, 0, Operator.INC, 10) == 10
    assert apply(field, 10, Operator.INC, -10) == 0


def test_a_full_container_accepts_elements_that_it_has() -> None:
    tags = Field("f", FieldType.SET, items=FieldType.INTEGER, max_length=2)
    assert apply(tags, [1, 2], Operator.ADD_TO_SET, 2) == [1, 2]
    stock = Field("f", FieldType.MAP, items=FieldType.INTEGER, max_length=1)
    assert apply(stock, {"a": 1}, Operator.PUT, {"a": 2}) == {"a": 2}


def test_no_zero_has_a_sign() -> None:
    result = apply(THINGS.fields["float"], 0.0, Operator.MUL, -2.0)
    assert math.copysign(1.0, result) == 1.0
