"""Operators that Redis does not support."""

from __future__ import annotations

from decimal import Decimal

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, StoreRefused
from mediator.stores.redis import RedisStore
from tests.conformance.redis.records import apply


def test_decimal_arithmetic_is_not_supported(store: RedisStore) -> None:
    supported = {operator for operator in Operator if store.supports(operator, FieldType.DECIMAL)}
    assert supported == {Operator.SET, Operator.UNSET}


async def test_an_unsupported_operator_is_refused(store: RedisStore, fragment: Fragment) -> None:
    call = OperatorCall("price", Operator.INC, Decimal(1))
    with pytest.raises(StoreRefused):
        await store.write([apply(fragment, "a", call)])
