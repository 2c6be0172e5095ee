"""Joint writes go in waves that are bounded by number and by size."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mediator.model.operations import Delete, Put, Revise, Update, WriteOperation
from mediator.model.operators import Operator, OperatorCall
from mediator.routing.model import ClassRoute
from mediator.transactions.chunks import WAVE_BYTES, WAVE_OPERATIONS, waves

HEAD = ("shop", "orders", "o1", "operation")
ROUTE = cast("ClassRoute", None)


def lengths(*operations: WriteOperation) -> list[int]:
    return [len(wave) for wave in waves([(ROUTE, operation) for operation in operations])]


def put(values: dict[str, Any]) -> Put:
    return Put(*HEAD, values=values)


def test_small_operations_go_together_up_to_a_number() -> None:
    many = [put({"title": "a"})] * (2 * WAVE_OPERATIONS + 1)
    assert lengths(*many) == [WAVE_OPERATIONS, WAVE_OPERATIONS, 1]


@pytest.mark.parametrize(
    "large",
    [
        put({"body": "x" * (WAVE_BYTES // 2)}),
        put({"body": {"below": ["x" * (WAVE_BYTES // 2)]}}),
        put({"body": {"k" * (WAVE_BYTES // 2): 1}}),
        put({"body": b"x" * (WAVE_BYTES // 2)}),
        put({"body": list(range(WAVE_BYTES // 16))}),
        Update(*HEAD, values={"body": "x" * (WAVE_BYTES // 2)}),
        Update(*HEAD, operators=(OperatorCall("body", Operator.PUSH, "x" * (WAVE_BYTES // 2)),)),
    ],
)
def test_large_operations_go_in_waves_of_their_own(large: WriteOperation) -> None:
    assert lengths(large, large, put({})) == [1, 2]


def test_an_operation_larger_than_a_wave_goes_alone() -> None:
    larger = put({"body": "x" * (2 * WAVE_BYTES)})
    assert lengths(put({}), larger, put({})) == [1, 1, 1]


def test_revisions_count_for_more_than_what_they_say() -> None:
    assert lengths(*[Revise(*HEAD)] * 17) == [16, 1]


def test_no_operations_make_no_wave() -> None:
    assert lengths() == []


def test_the_order_is_kept() -> None:
    operations = [(ROUTE, Delete("shop", "orders", f"o{n}", "operation")) for n in range(450)]
    assert [one for wave in waves(operations) for one in wave] == operations
