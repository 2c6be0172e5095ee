"""Operators of MongoDB, native and computed, against the reference."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall, OperatorFailure
from mediator.schema.tree import MISSING
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.write.attempt import attempt_of
from mediator.stores.port import (
    Fragment,
    Status,
    SystemConfig,
    WriteKind,
)
from tests.conformance.mongo.records import (
    FIELDS,
    INT64_MAX,
    increment,
    one,
    opened,
    put,
    values,
    writing,
)

integers = st.integers(-(2**63), INT64_MAX) | st.sampled_from(
    [0, 1, -1, 2, -2, INT64_MAX, INT64_MAX - 1, -(2**63), -(2**63) + 1, 2**53 + 1, 3037000500]
)


floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0) | st.sampled_from(
    [0.0, 1.7976931348623157e308, -1.7976931348623157e308, 1e308, 2.0**62, 2.0**63, 1e22, 5e-324]
)


exact = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-999, max_value=999)


decimals = exact | st.sampled_from([Decimal("1E-30"), Decimal("9" * 34), Decimal("-" + "9" * 34)])


moments = st.datetimes(timezones=st.just(UTC))


keys = st.sampled_from(["", "a", "a.b", "$inc", "$", "%", "%2E", "0", "_id", "\x00", "é", "\ue000"])


words = st.sampled_from(["", "a", "b", "$x", "\ue000", "\U0001f600"])


OPERANDS: dict[str, tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    "n": (integers, integers),
    "f": (floats, floats),
    "d": (decimals, decimals),
    "t": (moments, moments),
    "l": (st.lists(st.integers(0, 2), max_size=3), st.integers(0, 2)),
    "u": (st.sets(words, max_size=3).map(sorted), words),
    "m": (st.dictionaries(keys, integers, max_size=3), st.dictionaries(keys, integers, max_size=2)),
}


@st.composite
def operations(draw: st.DrawFn) -> tuple[Any, OperatorCall]:
    name = draw(st.sampled_from(sorted(OPERANDS)))
    before, argument = OPERANDS[name]
    able = [op for op in Operator if FIELDS[name].type in APPLICABLE[op]]
    operator = draw(
        st.sampled_from([op for op in able if op not in {Operator.SET, Operator.UNSET}])
    )
    value = draw(st.just(MISSING) | st.none() | before)
    if operator in {Operator.POP, Operator.SHIFT, Operator.NOW}:
        return value, OperatorCall(name, operator, True)
    if operator is Operator.REMOVE and name == "m":
        return value, OperatorCall(name, operator, draw(keys))
    return value, OperatorCall(name, operator, draw(argument))


async def _agree(
    store: MongoStore, fragment: Fragment, cases: list[tuple[Any, OperatorCall]]
) -> None:
    ids = [f"{position}" for position in range(len(cases))]
    await asyncio.gather(
        *(
            put(store, fragment, id_, **({} if value is MISSING else {call.field: value}))
            for id_, (value, call) in zip(ids, cases, strict=True)
        )
    )
    results = await asyncio.gather(
        *(
            one(store, writing(fragment, WriteKind.UPDATE, id_, operators=(call,), returning=()))
            for id_, (_, call) in zip(ids, cases, strict=True)
        )
    )
    for (value, call), result in zip(cases, results, strict=True):
        if call.operator is Operator.NOW:
            assert isinstance(result.values["t"], datetime)
        else:
            status, expected, failure = _reference(value, call)
            assert (result.status, result.failure) == (status, failure), (value, call)
            assert result.values == expected, (value, call)


def _reference(value: Any, call: OperatorCall) -> tuple[Status, Any, OperatorFailure | None]:
    try:
        after = apply_operator(FIELDS[call.field], value, call, datetime.now(UTC))
    except OperatorFailed as refused:
        return Status.REFUSED, {}, refused.failure
    return Status.APPLIED, {} if after is MISSING else {call.field: after}, None


@pytest.mark.parametrize("seed", range(12))
async def test_operators_do_what_the_reference_does(
    store: MongoStore, fragment: Fragment, seed: int
) -> None:
    await _agree(store, fragment, draw_cases(seed))


def draw_cases(seed: int) -> list[tuple[Any, OperatorCall]]:
    """Draw cases outside the event loop: hypothesis cannot await."""
    drawn: list[tuple[Any, OperatorCall]] = []

    @seeded(seed)
    @settings(max_examples=100, deadline=None, database=None)
    @given(operations())
    def collect(case: tuple[Any, OperatorCall]) -> None:
        drawn.append(case)

    collect()
    return drawn


async def test_usual_operators_take_one_round_trip(fragment: Fragment) -> None:
    layout = layout_of(fragment)
    assert attempt_of(layout, increment(fragment), 1, "") is not None
    halve = OperatorCall("d", Operator.MUL, Decimal("0.5"))
    write = writing(fragment, WriteKind.UPDATE, operators=(halve,))
    assert attempt_of(layout, write, 1, "") is None


async def test_concurrent_increments_of_two_processes_are_all_kept(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    """Two processes, one of them computing, lose no increment of each other."""
    await put(store, fragment, n=0, d=Decimal(0))
    add = OperatorCall("d", Operator.INC, Decimal("0.1"))
    computed = [writing(fragment, WriteKind.UPDATE, operators=(add,)) for _ in range(32)]
    async with opened(config) as other:
        results = await asyncio.gather(
            *(one(store, increment(fragment)) for _ in range(32)),
            *(one(other, write) for write in computed),
        )
    assert {result.status for result in results} == {Status.APPLIED}
    assert len({result.versions["main"] for result in results}) == 64
    assert await values(store, fragment) == {"n": 32, "d": Decimal("3.2")}


async def test_bulk_writes_of_two_processes_are_each_applied_once(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    ids = [f"r{i}" for i in range(20)]
    await store.write([writing(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    async with opened(config) as other:
        answers = await asyncio.gather(
            *(
                writer.write([increment(fragment, id_) for id_ in ids])
                for writer in (store, other) * 4
            )
        )
    for column, id_ in enumerate(ids):
        seen = {answer[column].values["n"] for answer in answers}
        assert seen == set(range(1, 9))
        assert (await values(store, fragment, id_))["n"] == 8
