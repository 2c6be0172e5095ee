"""Floats of PostgreSQL at their ends; see `tests.conformance.test_drawn_operators` for the rest."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, Status, WriteKind
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.records import fragment_of, get, put, write


@pytest.fixture
async def operand(store: PostgresStore) -> AsyncIterator[Fragment]:
    fragment = fragment_of(Field("float", FieldType.FLOAT))
    await store.prepare(fragment)
    yield fragment
    await store.drop(fragment)


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
    """One that the server cannot compute undoes the transaction of both."""
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
