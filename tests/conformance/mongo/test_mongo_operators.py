"""Native operators of MongoDB, and computed ones under concurrency."""

from __future__ import annotations

import asyncio
from decimal import Decimal

from mediator.model.operators import Operator, OperatorCall
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.write.attempt import attempt_of
from mediator.stores.port import Fragment, Status, SystemConfig, WriteKind
from tests.conformance.mongo.records import (
    increment,
    make_write,
    opened,
    put,
    read_values,
    write_one,
)


async def test_common_operators_take_one_round_trip(fragment: Fragment) -> None:
    layout = layout_of(fragment)
    assert attempt_of(layout, increment(fragment), 1, "") is not None
    halve = OperatorCall("d", Operator.MUL, Decimal("0.5"))
    write = make_write(fragment, WriteKind.UPDATE, operators=(halve,))
    assert attempt_of(layout, write, 1, "") is None


async def test_concurrent_increments_of_two_processes_are_all_kept(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    """Two processes, one of which computes values, lose none of each other's increments."""
    await put(store, fragment, n=0, d=Decimal(0))
    add = OperatorCall("d", Operator.INC, Decimal("0.1"))
    computed = [make_write(fragment, WriteKind.UPDATE, operators=(add,)) for _ in range(32)]
    async with opened(config) as other:
        results = await asyncio.gather(
            *(write_one(store, increment(fragment)) for _ in range(32)),
            *(write_one(other, write) for write in computed),
        )
    assert {result.status for result in results} == {Status.APPLIED}
    assert len({result.versions["main"] for result in results}) == 64
    assert await read_values(store, fragment) == {"n": 32, "d": Decimal("3.2")}


async def test_bulk_writes_of_two_processes_are_each_applied_once(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    ids = [f"r{i}" for i in range(20)]
    await store.write([make_write(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    async with opened(config) as other:
        result_lists = await asyncio.gather(
            *(
                writer.write([increment(fragment, id_) for id_ in ids])
                for writer in (store, other) * 4
            )
        )
    for column, id_ in enumerate(ids):
        counts = {results[column].values["n"] for results in result_lists}
        assert counts == set(range(1, 9))
        assert (await read_values(store, fragment, id_))["n"] == 8
