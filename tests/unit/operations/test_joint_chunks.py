"""Joint writes are sent in chunks, bounded by number of operations and by bytes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mediator.model.operations import Delete, Put, ReadModifyWrite, Update, WriteOperation
from mediator.model.operators import Operator, OperatorCall
from mediator.routing.model import ClassRoute
from mediator.transactions.joint import CHUNK_BYTES, CHUNK_OPERATIONS, chunks

HEAD = ("shop", "orders", "o1", "operation")
ROUTE = cast("ClassRoute", None)


def lengths(*operations: WriteOperation) -> list[int]:
    return [len(chunk) for chunk in chunks([(ROUTE, operation) for operation in operations])]


def put(values: dict[str, Any]) -> Put:
    return Put(*HEAD, values=values)


def test_a_chunk_has_a_maximum_of_operations() -> None:
    operations = [put({"title": "a"})] * (2 * CHUNK_OPERATIONS + 1)
    assert lengths(*operations) == [CHUNK_OPERATIONS, CHUNK_OPERATIONS, 1]


@pytest.mark.parametrize(
    "large",
    [
        put({"body": "x" * (CHUNK_BYTES // 2)}),
        put({"body": {"below": ["x" * (CHUNK_BYTES // 2)]}}),
        put({"body": {"k" * (CHUNK_BYTES // 2): 1}}),
        put({"body": b"x" * (CHUNK_BYTES // 2)}),
        put({"body": list(range(CHUNK_BYTES // 16))}),
        Update(*HEAD, values={"body": "x" * (CHUNK_BYTES // 2)}),
        Update(*HEAD, operators=(OperatorCall("body", Operator.PUSH, "x" * (CHUNK_BYTES // 2)),)),
    ],
)
def test_large_operations_get_their_own_chunks(large: WriteOperation) -> None:
    assert lengths(large, large, put({})) == [1, 2]


def test_an_operation_larger_than_a_chunk_goes_alone() -> None:
    larger = put({"body": "x" * (2 * CHUNK_BYTES)})
    assert lengths(put({}), larger, put({})) == [1, 1, 1]


def test_revisions_count_for_more_than_their_values() -> None:
    assert lengths(*[ReadModifyWrite(*HEAD)] * 17) == [16, 1]


def test_no_operations_make_no_chunk() -> None:
    assert lengths() == []


def test_the_order_is_kept() -> None:
    operations = [(ROUTE, Delete("shop", "orders", f"o{n}", "operation")) for n in range(450)]
    assert [operation for chunk in chunks(operations) for operation in chunk] == operations
