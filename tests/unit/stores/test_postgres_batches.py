"""Batches of writes keep the order of each record and answer every call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, Write, WriteKind
from mediator.stores.postgres.write.writer import batches

FRAGMENT = Fragment(
    "s",
    "d",
    "c",
    {name: Field(name, FieldType.INTEGER) for name in ("a", "b")},
    {"main": ("a", "b")},
)


def call(id_: str, kind: WriteKind, name: str) -> Write:
    operators = (OperatorCall(name, Operator.INC, 1),) if kind is WriteKind.UPDATE else ()
    return Write(FRAGMENT, id_, kind, "o", ("main",), operators=operators)


CALLS = st.lists(
    st.builds(call, st.sampled_from("xyz"), st.sampled_from(WriteKind), st.sampled_from("ab")),
    max_size=40,
)


@given(CALLS)
def test_the_order_of_each_record_is_kept(calls: list[Write]) -> None:
    numbers = [
        number for batch in batches(calls) for chunk in batch.chunks() for number, _ in chunk
    ]
    assert sorted(numbers) == list(range(len(calls)))
    for id_ in "xyz":
        record_numbers = [number for number in numbers if calls[number].id == id_]
        assert record_numbers == sorted(record_numbers)


@given(CALLS)
def test_an_insert_is_never_overtaken_within_a_batch(calls: list[Write]) -> None:
    for batch in batches(calls):
        ids = [write.id for _, write in batch.calls]
        assert not batch.shape.is_full or len(ids) == len(set(ids))


def test_counters_on_any_records_are_one_batch() -> None:
    calls = [call(id_, WriteKind.UPDATE, "a") for id_ in "xyxzzx"]
    assert len(batches(calls)) == 1
