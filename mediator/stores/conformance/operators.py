"""Operators give exactly the results of the mediator's reference, or are refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall, OperatorFailure
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.tree import MissingType
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    ConformanceFailure,
    applied,
    expect_status,
    present,
    require,
    same,
    show,
)
from mediator.stores.conformance.samples import Case, cases, collection, counter
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Status, StoreRefused, WriteResult

__all__ = ["THEME"]

THEME = Theme("operators")

_NOW = datetime(2020, 1, 1, tzinfo=UTC)


def _describe(case: Case) -> str:
    call = case.call
    return f"{call.operator} {show(call.argument)} on {case.field.name} = {show(case.before)}"


async def _prepare(scratch: Scratch, cases_: Sequence[Case]) -> ScratchClass:
    """Create one record for each case, with the field's value before."""
    subject = await scratch.subject(*{case.field.name: case.field for case in cases_}.values())
    rows = [subject.creation(str(i), case.row) for i, case in enumerate(cases_)]
    await subject.apply_all(rows, "for an operator")
    return subject


async def _apply_all(subject: ScratchClass, cases_: Sequence[Case]) -> list[WriteResult | None]:
    """Apply the cases; None for cases that the store refuses as unsupported."""
    changes = [
        subject.change(str(i), operators=(case.call,), returning=(case.field.name,))
        for i, case in enumerate(cases_)
    ]
    if subject.store.supports(cases_[0].call.operator, cases_[0].field.type):
        return list(await subject.write_all(changes))
    results: list[WriteResult | None] = []
    for change in changes:
        try:
            results.append(await subject.write(change))
        except StoreRefused:
            results.append(None)
    return results


async def _check_all(
    subject: ScratchClass, cases_: Sequence[Case], results: Sequence[WriteResult | None]
) -> None:
    records = await subject.read_all([str(i) for i in range(len(cases_))])
    for case, result, record in zip(cases_, results, records, strict=True):
        _check(case, result, present(record, _describe(case)).values)


def _check(case: Case, result: WriteResult | None, after: Values) -> None:
    """Compare the store's result with that of the reference."""
    try:
        expected = apply_operator(case.field, case.before, case.call, _NOW)
    except OperatorFailed as error:
        same(after, case.row, f"after a refused {_describe(case)}")
        if result is not None:
            expect_status(result, Status.REFUSED, _describe(case))
            same(result.failure, error.failure, f"failure of {_describe(case)}")
        return
    if result is None:
        same(after, case.row, f"after {_describe(case)}, which the store does not support")
        return
    row = {} if isinstance(expected, MissingType) else {case.field.name: expected}
    applied(result, _describe(case))
    same(result.values, row, f"returned by {_describe(case)}")
    same(after, row, f"read after {_describe(case)}")


_PAIRS = [
    (operator, type_)
    for operator, types in APPLICABLE.items()
    if operator not in (Operator.SET, Operator.UNSET, Operator.NOW)
    for type_ in sorted(types)
]


@THEME.proves_each(_PAIRS, "{}_on_{}", "contract")
async def agrees(operator: Operator, type_: FieldType, scratch: Scratch) -> None:
    """{} on {} is exact at the edges, or refused."""
    cases_ = list(cases(operator, type_))
    subject = await _prepare(scratch, cases_)
    await _check_all(subject, cases_, await _apply_all(subject, cases_))


@THEME.proves((Operator.NOW, FieldType.TIMESTAMP))
async def now_on_timestamp(scratch: Scratch) -> None:
    """The operator `now` sets a field to the store's time, by the clock of versions."""
    cases_ = list(cases(Operator.NOW, FieldType.TIMESTAMP))
    subject = await _prepare(scratch, cases_)
    for i, result in enumerate(await _apply_all(subject, cases_)):
        if result is None:
            continue
        now = applied(result, _describe(cases_[i])).values["value"]
        require(isinstance(now, datetime), f"now set {show(now)}")
        assert isinstance(now, datetime)
        same(now.utcoffset(), timedelta(0), "offset of now")
        version = datetime.fromtimestamp(result.versions["main"] / 1e6, UTC)
        require(abs(now - version) < timedelta(minutes=1), f"now is {now}, version {version}")
        same(await subject.values(str(i)), dict(result.values), "read after now")


@THEME.proves("contract")
async def bounds_hold_for_single_writes(scratch: Scratch) -> None:
    """A number beyond its field's bounds is refused in a call with one write, remembered or not.

    A store's paths for single and for many writes can be entirely different.
    """
    cases_ = [
        case
        for operator in (Operator.INC, Operator.MUL, Operator.MAX)
        if scratch.store.supports(operator, FieldType.INTEGER)
        for case in cases(operator, FieldType.INTEGER)
        if case.field.is_bounded
    ]
    for remember in (None, "f"):
        subject = await _prepare(scratch, cases_)
        results = [
            await subject.update(
                str(i), operators=(case.call,), returning=(case.field.name,), remember=remember
            )
            for i, case in enumerate(cases_)
        ]
        await _check_all(subject, cases_, results)


@THEME.proves("contract")
async def several_operators_in_one_write(scratch: Scratch) -> None:
    """Operators on several fields of several groups are applied together."""
    calls = (
        OperatorCall("n", Operator.INC, 2),
        OperatorCall("m", Operator.MAX, 7),
        OperatorCall("l", Operator.PUSH, 3),
        OperatorCall("s", Operator.ADD_TO_SET, 1),
    )
    fields = (
        counter("n"),
        counter("m", group="side"),
        collection(FieldType.LIST, FieldType.INTEGER, "l"),
        collection(FieldType.SET, FieldType.INTEGER, "s", group="side"),
    )
    types = {field.name: field.type for field in fields}
    offered = tuple(c for c in calls if scratch.store.supports(c.operator, types[c.field]))
    before: Values = {"n": 1, "m": 1, "l": [1], "s": [2]}
    after: Values = {"n": 3, "m": 7, "l": [1, 3], "s": [1, 2]}
    subject = await scratch.subject(*fields)
    await subject.create("x", before)
    result = await subject.update("x", operators=offered, returning=())
    expected = before | {call.field: after[call.field] for call in offered}
    same(applied(result).values, expected, "after several operators")


@THEME.proves("contract")
async def a_refused_operator_undoes_all(scratch: Scratch) -> None:
    """A write with one refused operator leaves all fields and versions unchanged."""
    supports = scratch.store.supports
    if not (supports(Operator.INC, FieldType.INTEGER) and supports(Operator.PUSH, FieldType.LIST)):
        return
    subject = await scratch.subject(
        counter("a"),
        counter("full", group="side"),
        counter("set"),
        collection(FieldType.LIST, FieldType.INTEGER, "l"),
    )
    await subject.create("x", {"a": 1, "full": INTEGER_MAX, "set": 1, "l": [1]})
    before = await subject.read("x")
    result = await subject.update(
        "x",
        {"set": 2},
        operators=(
            OperatorCall("a", Operator.INC, 1),
            OperatorCall("l", Operator.PUSH, 2),
            OperatorCall("full", Operator.INC, 1),
        ),
        remember="f",
    )
    expect_status(result, Status.REFUSED, "a write with an overflow")
    same(result.failure, OperatorFailure("full", "overflow"), "the failure")
    same(await subject.read("x"), before, "after a refused write")


@THEME.proves("contract")
async def unknown_pairs_are_never_wrong(scratch: Scratch) -> None:
    """A store tells for every operator and type whether it supports the pair, without raising."""
    for operator, types in APPLICABLE.items():
        for type_ in FieldType:
            is_supported = scratch.store.supports(operator, type_)
            if not isinstance(is_supported, bool):
                raise ConformanceFailure(f"supports({operator}, {type_}) is {show(is_supported)}")
            if is_supported and type_ not in types:
                raise ConformanceFailure(f"{operator} does not apply to {type_}, yet is supported")
