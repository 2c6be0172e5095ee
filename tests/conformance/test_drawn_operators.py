"""Operators on generated values and on edge numbers: each store against the reference."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall, OperatorFailure
from mediator.schema.tree import MISSING, Field, MissingType
from mediator.schema.types import SCALARS, FieldType, Values
from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    Store,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)
from tests.conformance.real_stores import STORES, opened

INT64_MAX: Final = 2**63 - 1
_EDGES: Final = [
    0,
    1,
    -1,
    2,
    -2,
    INT64_MAX,
    INT64_MAX - 1,
    -INT64_MAX,
    -(2**63),
    2**53 + 1,
    3037000500,
]
_FLOAT_EDGES: Final = [0.0, 1.7976931348623157e308, -1e308, 2.0**62, 2.0**63, 1e22, 0.1, 5e-324]
_DECIMAL_EDGES: Final = [Decimal("1E-30"), Decimal("9" * 34), Decimal("-" + "9" * 34)]

_TEXTS: Final = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
) | st.sampled_from(["", "a", "b", "$x", "\ue000", "\U0001f600"])
_KEYS: Final = _TEXTS.filter(bool) | st.sampled_from(["a.b", "$inc", "$", "%", "%2E", "0", "_id"])
_DECIMALS: Final = st.decimals(
    allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30
).map(lambda d: Decimal(f"{d:.28g}"))

_VALUES: Final[Mapping[FieldType, st.SearchStrategy[Any]]] = {
    FieldType.STRING: _TEXTS,
    FieldType.REFERENCE: _TEXTS,
    FieldType.INTEGER: st.integers(-(2**63), INT64_MAX) | st.sampled_from(_EDGES),
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)
    | st.sampled_from(_FLOAT_EDGES),
    FieldType.DECIMAL: _DECIMALS | st.sampled_from(_DECIMAL_EDGES),
    FieldType.BOOLEAN: st.booleans(),
    FieldType.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    FieldType.BINARY: st.binary(max_size=8),
    FieldType.DOCUMENT: st.dictionaries(
        _TEXTS,
        st.none() | st.booleans() | st.integers(-9, 9) | _TEXTS | st.lists(_TEXTS),
        max_size=3,
    ),
}

_PAIRS: Final = [
    (operator, type_)
    for operator, types in APPLICABLE.items()
    for type_ in sorted(types)
    if operator not in (Operator.SET, Operator.UNSET, Operator.NOW)
]
_MAX_LENGTH: Final = 3


@dataclass(frozen=True)
class Case:
    """An operator on a field, and the field's value before."""

    field: Field
    present: Any
    call: OperatorCall

    @property
    def before(self) -> Values:
        return {} if self.present is MISSING else {self.field.name: self.present}

    def expected(self) -> Values | OperatorFailure:
        """Return the field's value afterwards, or why the operator is refused."""
        try:
            value = apply_operator(self.field, self.present, self.call, datetime.now(UTC))
        except OperatorFailed as error:
            return error.failure
        return {} if isinstance(value, MissingType) else {self.field.name: value}


def _fields_of(type_: FieldType) -> list[Field]:
    """Return a field for each type of items and each maximum length of the cases."""
    if type_ in SCALARS:
        return [Field(str(type_), type_)]
    kinds = sorted(SCALARS) if type_ is FieldType.SET else [*sorted(SCALARS), FieldType.DOCUMENT]
    return [
        Field(f"{type_}_{items}_{max_length or 'any'}", type_, items=items, max_length=max_length)
        for items in kinds
        for max_length in (None, _MAX_LENGTH)
    ]


FIELDS: Final = {field.name: field for _, type_ in _PAIRS for field in _fields_of(type_)}


def _values(field: Field) -> st.SearchStrategy[Any]:
    if field.items is None:
        return _VALUES[field.type]
    items = _VALUES[field.items]
    if field.type is FieldType.MAP:
        return st.dictionaries(_KEYS, items, max_size=_MAX_LENGTH + 1)
    lists = st.lists(items, max_size=_MAX_LENGTH + 1)
    return lists.map(lambda i: sorted(set(i))) if field.type is FieldType.SET else lists


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    operator, type_ = draw(st.sampled_from(_PAIRS))
    field = draw(st.sampled_from(_fields_of(type_)))
    present = draw(st.just(MISSING) | st.none() | _values(field))
    if operator in (Operator.POP, Operator.SHIFT):
        argument: Any = True
    elif operator is Operator.PUT:
        argument = draw(_values(field))
    elif operator is Operator.REMOVE and type_ is FieldType.MAP:
        argument = draw(_KEYS)
    else:
        argument = draw(_VALUES[field.items or type_])
    if isinstance(present, list) and present and operator in (Operator.REMOVE, Operator.ADD_TO_SET):
        argument = draw(st.sampled_from([argument, present[-1]]))
    return Case(field, present, OperatorCall(field.name, operator, argument))


@dataclass(frozen=True)
class Operands:
    """A store, and a class with all fields."""

    store: Store
    fragment: Fragment

    async def apply(self, cases: list[Case], *, together: bool) -> list[WriteResult]:
        """Apply each case to its own object, in one call or in one call each."""
        ids = [str(number) for number in range(len(cases))]
        before = [
            self._write(i, WriteKind.REPLACE, values=c.before)
            for i, c in zip(ids, cases, strict=True)
        ]
        await self.store.write(before)
        writes = [
            self._write(id_, WriteKind.UPDATE, operators=(case.call,), returning=(case.field.name,))
            for id_, case in zip(ids, cases, strict=True)
        ]
        if together:
            return await self.store.write(writes)
        results = await asyncio.gather(*(self.store.write([write]) for write in writes))
        return [result for [result] in results]

    async def values(self, number: int) -> list[Values]:
        records = await self.store.read([Read(self.fragment, str(i)) for i in range(number)])
        return [record.values for record in records if record is not None]

    def _write(self, id_: str, kind: WriteKind, **options: Any) -> Write:
        return Write(self.fragment, id_, kind, uuid.uuid4().hex, ("main",), **options)


@pytest.fixture(scope="module", params=STORES)
async def operands(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[Operands]:
    config = replace(config_of[request.param], namespace="operands", deadline_s=30.0)
    name = f"c{uuid.uuid4().hex[:12]}"
    fragment = Fragment(config.name, "d", name, FIELDS, {"main": tuple(FIELDS)})
    async with opened(config) as store:
        await store.prepare(fragment)
        yield Operands(store, fragment)
        await store.drop(fragment)


async def _check_agreement(operands: Operands, candidates: list[Case], *, together: bool) -> None:
    supports = operands.store.supports
    cases = [case for case in candidates if supports(case.call.operator, case.field.type)]
    results = await operands.apply(cases, together=together)
    records = await operands.values(len(cases))
    for case, result, record in zip(cases, results, records, strict=True):
        expected = case.expected()
        if isinstance(expected, OperatorFailure):
            assert (result.status, result.failure) == (Status.REFUSED, expected), case
            assert record == case.before, case
        else:
            assert (result.status, result.values) == (Status.APPLIED, expected), case
            assert record == expected, case


# A failure names its case, so the other cases of the example need no shrinking.
@settings(
    max_examples=75,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(cases=st.lists(_cases(), min_size=8, max_size=12), together=st.booleans())
async def test_operators_agree_with_the_reference(
    operands: Operands, cases: list[Case], together: bool
) -> None:
    await _check_agreement(operands, cases, together=together)


@pytest.mark.parametrize(
    ("type_", "edges"), [(FieldType.INTEGER, _EDGES), (FieldType.FLOAT, _FLOAT_EDGES)]
)
async def test_numbers_are_exact_at_every_edge(
    operands: Operands, type_: FieldType, edges: list[Any]
) -> None:
    [field] = _fields_of(type_)
    cases = [
        Case(field, present, OperatorCall(field.name, operator, argument))
        for operator, operand_type in _PAIRS
        if operand_type is type_
        for present in [*edges, None, MISSING]
        for argument in edges
    ]
    await _check_agreement(operands, cases, together=True)
