"""What Redis does of operators that are refused, or not offered."""

from __future__ import annotations

from decimal import Decimal

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, Read, Status, StoreRefused
from mediator.stores.redis import RedisStore
from tests.conformance.redis.records import apply, only, put


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
