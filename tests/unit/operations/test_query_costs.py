"""What a query costs while it is carried out, over a store in memory: time, counted by a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mediator.base.clock import Clock, SystemClock
from mediator.data_plane.executor import Executor
from mediator.model.filters import Filter
from mediator.model.guard import NullGuard
from mediator.model.query import Aggregate, Computation, Function, Query
from mediator.operations.calls import StoreCalls
from mediator.query.budget import Limits
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.tree import ClassSchema, Field, Schema
from mediator.schema.types import FieldType, Values
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Fragment, Write, WriteKind
from mediator.stores.systems import Systems
from tests.conformance.searching_model import SearchingModel

FIELDS = {
    "n": Field("n", FieldType.INTEGER),
    "text": Field("text", FieldType.STRING),
}
SCHEMA = ClassSchema("things", FIELDS)
FRAGMENT = Fragment("model", "db", "things", FIELDS, {"main": tuple(FIELDS)})


class Ticking:
    """A clock of which every reading takes a millisecond."""

    def __init__(self) -> None:
        self.readings = 0

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        self.readings += 1
        return self.readings / 1_000


class Listing(SearchingModel):
    """Finds records, and computes nothing."""

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        return False


async def executor_of(
    objects: Mapping[str, Values], limits: Limits, clock: Clock | None = None
) -> Executor:
    """Return the executor of a class with these objects."""
    store, systems, unused = Listing(), Systems(), _any(None)
    await store.prepare(FRAGMENT)
    create = WriteKind.CREATE
    await store.write([Write(FRAGMENT, i, create, i, ("main",), v) for i, v in objects.items()])
    systems.add(GuardedStore(store, lambda _: None, SystemClock()))
    calls = StoreCalls(systems, NullGuard(), SystemClock())
    executor = Executor(calls, unused, unused, limits, clock or SystemClock(), lambda _: None)
    routes = {"things": ClassRoute(SCHEMA, 1, (FRAGMENT,))}
    database = DatabaseRoute(Schema("db", {"things": SCHEMA}), routes)
    executor.adopt(RoutingModel(1, {"db": database}))
    return executor


def _any(value: object) -> Any:
    return value


def numbered(count: int, **values: Any) -> dict[str, Values]:
    return {f"{number:04}": {"n": number, **values} for number in range(count)}


def averages(group: str) -> Aggregate:
    return Aggregate(((group,),), {"mean": Computation(Function.AVG, ("n",))})


async def test_the_event_loop_runs_while_groups_are_computed() -> None:
    ticks, count = 0, 100

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    executor = await executor_of(numbered(count), Limits(), Ticking())
    other = asyncio.create_task(tick())
    query = Query("db", "things", aggregate=averages("n"), allow_scan=True)
    result = await executor.query(query)
    other.cancel()
    assert len(result.rows) == count
    # Each object, each group that is computed, and each that is sorted is a slice of its own.
    assert ticks >= 2.5 * count
