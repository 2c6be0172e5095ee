"""Costs of running queries over a store in memory: slices of time, and bytes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mediator.base.clock import Clock, SystemClock
from mediator.base.errors import TooCostly
from mediator.data_plane.executor import Executor
from mediator.model.filters import Compare, Comparison, Filter
from mediator.model.guard import NullGuard
from mediator.model.query import Aggregate, Computation, Function, OrderBy, Query
from mediator.model.sizes import large_fields, sizes_of
from mediator.operations.calls import StoreCalls
from mediator.query.budget import Limits
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.tree import ClassSchema, Field, Schema
from mediator.schema.types import FieldType, Values
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import (
    AccessPath,
    Fragment,
    Pushdown,
    SearchPage,
    SearchRequest,
    Write,
    WriteKind,
)
from mediator.stores.systems import Systems
from tests.clocks import Ticking
from tests.conformance.searching_model import SearchingModel

FIELDS = {
    "n": Field("n", FieldType.INTEGER),
    "text": Field("text", FieldType.STRING),
}
SCHEMA = ClassSchema("things", FIELDS)
FRAGMENT = Fragment("model", "db", "things", FIELDS, {"main": tuple(FIELDS)})


class Listing(SearchingModel):
    """A store without aggregation that records the `limits` of the requested pages."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    async def find(self, find: SearchRequest) -> SearchPage:
        self.limits.append(find.limit)
        return await super().find(find)

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        return False


async def executor_of(
    objects: Mapping[str, Values],
    limits: Limits,
    clock: Clock | None = None,
    store: Listing | None = None,
) -> Executor:
    """Return an executor for a class with these objects."""
    store, systems, unused = store or Listing(), Systems(), _any(None)
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


def numbered_objects(count: int, **values: Any) -> dict[str, Values]:
    return {f"{number:04}": {"n": number, **values} for number in range(count)}


def averages_by(group: str) -> Aggregate:
    return Aggregate(((group,),), {"mean": Computation(Function.AVG, ("n",))})


async def test_the_event_loop_runs_while_groups_are_computed() -> None:
    ticks, count = 0, 100

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    executor = await executor_of(numbered_objects(count), Limits(), Ticking())
    ticker = asyncio.create_task(tick())
    query = Query("db", "things", aggregate=averages_by("n"), allow_scan=True)
    result = await executor.query(query)
    ticker.cancel()
    assert len(result.rows) == count
    # Each object read, each group computed and each group sorted is its own slice.
    assert ticks >= 2.5 * count


LARGE = "x" * 1_000
LIMITS = Limits(bytes=20_500)
ALL = Query("db", "things", limit=1_000, may_end_early=True, allow_scan=True)


async def pages_of(executor: Executor, query: Query) -> list[list[str]]:
    """Return the ids of all pages of a query."""
    pages: list[list[str]] = []
    while True:
        result = await executor.query(query)
        pages.append([item.outcome.id for item in result.items])
        if result.next is None:
            return pages
        query = replace(query, after=result.next)


@pytest.mark.parametrize("descending", [False, True])
async def test_a_page_of_large_objects_ends_early_and_the_next_one_goes_on(
    descending: bool,
) -> None:
    objects = numbered_objects(50, text=LARGE)
    executor = await executor_of(objects, LIMITS)
    pages = await pages_of(executor, replace(ALL, order=(OrderBy(("n",), descending),)))
    assert [id_ for page in pages for id_ in page] == sorted(objects, reverse=descending)
    # 20 fit within the limit; leaving out the last shows that more follow.
    assert [len(page) for page in pages] == [19, 19, 12]


async def test_an_object_beyond_the_limit_is_a_page_of_its_own() -> None:
    executor = await executor_of(numbered_objects(3, text=30 * LARGE), LIMITS)
    assert await pages_of(executor, ALL) == [["0000"], ["0001"], ["0002"]]


async def test_a_query_that_may_not_end_early_is_refused() -> None:
    executor = await executor_of(numbered_objects(21, text=LARGE), LIMITS)
    for query in (
        replace(ALL, may_end_early=False),
        replace(ALL, aggregate=averages_by("text")),
    ):
        with pytest.raises(TooCostly) as refused:
            await executor.query(query)
        assert refused.value.extra == {"bytes": LIMITS.bytes}
        assert refused.value.examined == 21
    result = await executor.query(replace(ALL, fields=("n",), may_end_early=False))
    assert len(result.items) == 21


async def test_a_query_that_finds_nothing_within_the_limit_is_refused() -> None:
    """It has no last object, after which the next page could start."""

    class Searching(Listing):
        def pushdown(
            self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
        ) -> Pushdown:
            return Pushdown(None, filter_, AccessPath.CLIENT_SCAN, ordered=True)

    executor = await executor_of(numbered_objects(50, text=LARGE), LIMITS, store=Searching())
    page = await executor.query(replace(ALL, filter=Compare(Comparison.LT, ("n",), 10)))
    assert [item.outcome.id for item in page.items] == [f"{number:04}" for number in range(9)]
    assert page.next is not None
    with pytest.raises(TooCostly):
        await executor.query(replace(ALL, filter=Compare(Comparison.GT, ("n",), 40)))


async def test_pages_of_the_store_adapt_to_the_sizes_of_objects() -> None:
    for values, fields, limits in (
        ({"text": 40 * LARGE}, None, [101, 100, 100, 100]),
        ({"text": LARGE}, None, [101, 202, 98]),
        ({"text": LARGE}, ("n",), [401]),
    ):
        store = Listing()
        executor = await executor_of(numbered_objects(401, **values), Limits(), store=store)
        result = await executor.query(replace(ALL, limit=400, fields=fields))
        assert (len(result.items), store.limits) == (400, limits)
    store.limits.clear()
    await executor.query(replace(ALL, limit=400, is_sized=True))
    assert store.limits == [401]


async def test_sizes_of_many_elements_are_counted_in_a_thread() -> None:
    document = {"k": [["ab", b"cd"], {"e": 1}]}
    assert await sizes_of([{"d": document, "s": "abc"}, {}], ("d", "s")) == [17, 0]
    main_thread, threads = threading.get_ident(), set[int]()

    class RecordingDict(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            threads.add(threading.get_ident())
            return super().get(name, default)

    assert await sizes_of([RecordingDict(d=[1] * 100_000)], ("d",)) == [800_000]
    assert threads > {main_thread}


def test_fields_of_bounded_size_are_not_measured() -> None:
    fields = {
        "n": Field("n", FieldType.INTEGER),
        "short": Field("short", FieldType.STRING, max_length=100),
        "long": Field("long", FieldType.STRING, max_length=10_000),
        "any": Field("any", FieldType.BINARY),
        "all": Field("all", FieldType.LIST, items=FieldType.STRING),
    }
    assert large_fields(fields, None) == ("long", "any", "all")
    assert large_fields(fields, ("all", "n")) == ("all",)
