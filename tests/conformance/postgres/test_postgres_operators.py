"""Operators of PostgreSQL, against the reference; floats at their ends."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall, OperatorFailure
from mediator.schema.tree import MISSING, Field
from mediator.schema.types import SCALARS, FieldType
from mediator.stores.port import (
    Fragment,
    Status,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.records import fragment_of, get, one, put, write

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)


VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.STRING: TEXT,
    FieldType.REFERENCE: TEXT,
    FieldType.INTEGER: st.one_of(
        st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.just(2**63 - 1)
    ),
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
    FieldType.DECIMAL: DECIMALS.map(lambda d: Decimal(f"{d:.28g}")),
    FieldType.BOOLEAN: st.booleans(),
    FieldType.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    FieldType.BINARY: st.binary(max_size=8),
    FieldType.DOCUMENT: st.dictionaries(
        TEXT,
        st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXT, st.lists(TEXT)),
        max_size=3,
    ),
}


PAIRS = [
    (operator, type_)
    for operator, types in APPLICABLE.items()
    for type_ in sorted(types)
    if operator not in (Operator.SET, Operator.UNSET, Operator.NOW)
]


def _values(field: Field) -> st.SearchStrategy[Any]:
    if field.items is None:
        return VALUES[field.type]
    items = VALUES[field.items]
    if field.type is FieldType.MAP:
        return st.dictionaries(TEXT.filter(bool), items, max_size=4)
    listed = st.lists(items, max_size=4)
    return listed.map(lambda i: sorted(set(i))) if field.type is FieldType.SET else listed


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Field, Any, OperatorCall]:
    operator, type_ = draw(st.sampled_from(PAIRS))
    scalars = sorted(SCALARS)
    kinds = scalars if type_ is FieldType.SET else [*scalars, FieldType.DOCUMENT]
    items = None if type_ in SCALARS else draw(st.sampled_from(kinds))
    longest = draw(st.sampled_from([None, 3]))
    field = Field("f", type_, items=items, max_length=None if type_ in SCALARS else longest)
    present = draw(st.one_of(st.just(MISSING), st.none(), _values(field)))
    if operator in (Operator.POP, Operator.SHIFT):
        argument: Any = True
    elif operator is Operator.PUT:
        argument = draw(_values(field))
    elif operator is Operator.REMOVE and type_ is FieldType.MAP:
        argument = draw(TEXT.filter(bool))
    else:
        argument = draw(VALUES[items or type_])
    if isinstance(present, list) and present and operator in (Operator.REMOVE, Operator.ADD_TO_SET):
        argument = draw(st.sampled_from([argument, present[-1]]))
    return field, present, OperatorCall("f", operator, argument)


def _field_name(field: Field) -> str:
    return f"{field.type}_{field.items or ''}_{field.max_length or ''}".rstrip("_")


@pytest.fixture(scope="session")
async def operand(store: PostgresStore) -> AsyncIterator[Fragment]:
    """A class with a field of each type, items and length that a case may draw."""
    fields = []
    for _, type_ in PAIRS:
        for items in [None] if type_ in SCALARS else [*sorted(SCALARS), FieldType.DOCUMENT]:
            if type_ is not FieldType.SET or items is not FieldType.DOCUMENT:
                for longest in (None,) if type_ in SCALARS else (None, 3):
                    field = Field("", type_, items=items, max_length=longest)
                    fields.append(replace(field, name=_field_name(field)))
    fragment = fragment_of(*fields)
    await store.prepare(fragment)
    yield fragment
    await store.drop(fragment)


def _reference(field: Field, present: Any, call: OperatorCall) -> dict[str, Any] | OperatorFailure:
    try:
        value = apply_operator(field, present, call, datetime.now(UTC))
    except OperatorFailed as refused:
        return refused.failure
    return {} if value is MISSING else {field.name: value}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=_cases())
async def test_operators_do_what_the_reference_does(
    store: PostgresStore, operand: Fragment, case: tuple[Field, Any, OperatorCall]
) -> None:
    drawn, present, drawn_call = case
    field = operand.fields[_field_name(drawn)]
    call = replace(drawn_call, field=field.name)
    before = {} if present is MISSING else {field.name: present}
    await put(store, operand, "x", **before)
    act = write(operand, "x", WriteKind.UPDATE, operators=(call,), returning=(field.name,))
    result = await one(store, act)
    expected = _reference(field, present, call)
    after = before if isinstance(expected, OperatorFailure) else expected
    assert result.status is (Status.APPLIED if after is expected else Status.REFUSED)
    assert result.failure == (None if after is expected else expected)
    assert result.values == (after if after is expected else {})
    assert await get(store, operand, "x") == after


@pytest.mark.parametrize(
    ("present", "operator", "argument"),
    [
        (1e308, Operator.INC, 1e308),
        (-1e308, Operator.MUL, 10.0),
        (1e-200, Operator.MUL, 1e-200),
        (5e-324, Operator.MUL, 0.5),
        (5e-324, Operator.MUL, 0.75),
        (2.2250738585072014e-308, Operator.MUL, 0.1),
        (1.7976931348623157e308, Operator.INC, -1.7976931348623157e308),
    ],
)
async def test_floats_at_their_ends(
    store: PostgresStore, operand: Fragment, present: float, operator: Operator, argument: float
) -> None:
    call = OperatorCall("float", operator, argument)
    calls = []
    for id_, value in (("edge", present), ("calm", 1.0)):
        await put(store, operand, id_, float=value)
        calls.append(write(operand, id_, WriteKind.UPDATE, operators=(call,)))
    exact = present * argument if operator is Operator.MUL else present + argument
    edge, calm = await store.write(calls)
    assert edge.status is (Status.APPLIED if math.isfinite(exact) else Status.REFUSED)
    stored = await get(store, operand, "edge")
    assert stored == {"float": exact if math.isfinite(exact) else present}
    assert calm.status is Status.APPLIED
