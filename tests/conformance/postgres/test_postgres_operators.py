"""PostgreSQL's floats at the limits of their range; see also `test_drawn_operators`."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, Status, WriteKind
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.records import fragment_of, get, make_write, put


@pytest.fixture
async def operand(store: PostgresStore) -> AsyncIterator[Fragment]:
    fragment = fragment_of(Field("float", FieldType.FLOAT))
    await store.prepare(fragment)
    yield fragment
    await store.drop(fragment)


@pytest.mark.parametrize(
    ("initial", "operator", "argument"),
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
async def test_floats_at_the_limits_of_their_range(
    store: PostgresStore, operand: Fragment, initial: float, operator: Operator, argument: float
) -> None:
    """A result that the server cannot compute rolls back the transaction of both writes."""
    call = OperatorCall("float", operator, argument)
    calls = []
    for id_, value in (("edge", initial), ("calm", 1.0)):
        await put(store, operand, id_, float=value)
        calls.append(make_write(operand, id_, WriteKind.UPDATE, operators=(call,)))
    exact = initial * argument if operator is Operator.MUL else initial + argument
    edge, calm = await store.write(calls)
    assert edge.status is (Status.APPLIED if math.isfinite(exact) else Status.REFUSED)
    stored = await get(store, operand, "edge")
    assert stored == {"float": exact if math.isfinite(exact) else initial}
    assert calm.status is Status.APPLIED
