"""Operators on Redis: the reference and the scripts agree."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall
from mediator.schema.tree import MISSING
from mediator.schema.types import FieldType, Value
from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    StoreRefused,
)
from mediator.stores.redis import RedisStore
from tests.conformance.redis.records import (
    FIELDS,
    FLOATS,
    INT64,
    MANY,
    apply,
    only,
    put,
)


async def agree(
    store: RedisStore, fragment: Fragment, cases: list[tuple[str, Operator, Any, Any]]
) -> None:
    """Apply each case (field, operator, value, argument) in one write to an object of its own."""
    setups, calls = [], []
    for number, (name, operator, value, argument) in enumerate(cases):
        setups.append(put(fragment, f"{number}", **({} if value is MISSING else {name: value})))
        call = OperatorCall(name, operator, argument)
        calls.append(apply(fragment, f"{number}", call, returning=(name,)))
    await store.write(setups)
    results = await store.write(calls)
    for (name, operator, value, argument), result in zip(cases, results, strict=True):
        call = OperatorCall(name, operator, argument)
        expected: Any
        try:
            expected = apply_operator(FIELDS[name], value, call, datetime.now(UTC))
        except OperatorFailed as refused:
            expected = refused.failure
        refusal = result.status is Status.REFUSED
        found = result.failure if refusal else result.values.get(name, MISSING)
        assert found == expected, (value, call)


EDGES = [0, 1, -1, 10**15, 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 1 - 2**63]
ARITHMETIC = [operator for operator, types in APPLICABLE.items() if FieldType.INTEGER in types]
ARITHMETIC = [o for o in ARITHMETIC if o not in {Operator.SET, Operator.UNSET}]


async def test_integers_are_exact_at_every_edge(store: RedisStore, fragment: Fragment) -> None:
    cases: list[tuple[str, Operator, Any, Any]] = [
        ("hits", operator, value, argument)
        for operator in ARITHMETIC
        for value in [*EDGES, None, MISSING]
        for argument in EDGES
    ]
    await agree(store, fragment, cases)


@MANY
@given(cases=st.lists(st.tuples(st.sampled_from(ARITHMETIC), INT64, INT64), min_size=20))
async def test_integers_are_exact(
    store: RedisStore, fragment: Fragment, cases: list[tuple[Operator, int, int]]
) -> None:
    await agree(store, fragment, [("hits", *case) for case in cases])


FLOAT_OPERATORS = st.sampled_from([Operator.INC, Operator.MUL, Operator.MIN, Operator.MAX])


@MANY
@given(cases=st.lists(st.tuples(FLOAT_OPERATORS, st.none() | FLOATS, FLOATS), min_size=10))
@example(cases=[(Operator.MUL, 1.7976931348623157e308, 2.0), (Operator.INC, 0.1, 0.2)])
async def test_floats_are_doubles(store: RedisStore, fragment: Fragment, cases: list[Any]) -> None:
    await agree(store, fragment, [("score", *case) for case in cases])


@MANY
@given(
    cases=st.lists(
        st.tuples(
            st.sampled_from([Operator.MIN, Operator.MAX]),
            st.none() | st.datetimes(timezones=st.just(UTC)),
            st.datetimes(timezones=st.just(UTC)),
        ),
        min_size=10,
    )
)
async def test_timestamps_are_compared_to_the_microsecond(
    store: RedisStore, fragment: Fragment, cases: list[Any]
) -> None:
    await agree(store, fragment, [("seen", *case) for case in cases])


async def test_collections(store: RedisStore, fragment: Fragment) -> None:
    absent: list[Any] = [None, MISSING]
    lists: list[Value] = [[], [1], [1, 2, 1], [3, 1, 2, 1]]
    sets: list[Value] = [[], ["a"], ["a", "b", "c"], ["a", "b", "c", "d"]]
    maps: list[Value] = [{}, {"a": "x"}, {"a": "x", "b": "y", "c": "z"}]
    on_lists = [Operator.PUSH, Operator.PUSH_FRONT, Operator.REMOVE]
    await agree(
        store,
        fragment,
        [("log", operator, value, 1) for operator in on_lists for value in [*lists, *absent]]
        + [("log", o, v, True) for o in (Operator.POP, Operator.SHIFT) for v in [*lists, *absent]]
        + [
            ("tags", operator, value, "a")
            for operator in (Operator.ADD_TO_SET, Operator.REMOVE)
            for value in [*sets, *absent]
        ]
        + [("notes", Operator.REMOVE, value, "a") for value in [*maps, *absent]]
        + [
            ("notes", Operator.PUT, value, argument)
            for value in [*maps, *absent]
            for argument in ({}, {"a": "1"}, {"a": "1", "é": "2"}, dict.fromkeys("abcd", "3"))
        ],
    )


async def test_a_refused_operator_leaves_everything(store: RedisStore, fragment: Fragment) -> None:
    await only(store, put(fragment, "a", hits=2**63 - 1, log=[1], score=1.0))
    (before,) = await store.read([Read(fragment, "a")])
    calls = [
        OperatorCall("log", Operator.PUSH, 2),
        OperatorCall("score", Operator.INC, 1.0),
        OperatorCall("hits", Operator.INC, 1),
    ]
    result = await only(store, apply(fragment, "a", *calls, values={"name": "x"}))
    assert result.status is Status.REFUSED
    assert (await store.read([Read(fragment, "a")])) == [before]


def test_decimal_arithmetic_is_not_offered(store: RedisStore) -> None:
    offered = {operator for operator in Operator if store.supports(operator, FieldType.DECIMAL)}
    assert offered == {Operator.SET, Operator.UNSET}


async def test_an_operator_that_is_not_offered_is_refused(
    store: RedisStore, fragment: Fragment
) -> None:
    call = OperatorCall("price", Operator.INC, Decimal(1))
    with pytest.raises(StoreRefused):
        await store.write([apply(fragment, "a", call)])
