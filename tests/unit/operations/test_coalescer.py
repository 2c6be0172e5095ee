"""The coalescer over a scripted store: which operations share a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Locked, MediatorError, OutcomeUnknown, TooManyRequests, Unavailable
from mediator.base.observation import BatchFinished, Observation
from mediator.operations import coalescer
from mediator.operations.batch_wait import MAX_CALLS
from mediator.operations.coalescer import Coalescer
from mediator.schema.batching import WaitBound
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, Read, Record, Status, Write, WriteKind, WriteResult

BOUND = WaitBound(60.0)
"""Long enough that no two batches overlap."""
HITS = {"hits": Field("hits", FieldType.INTEGER)}
FRAGMENT = Fragment("postgres", "news", "articles", HITS, {"main": ("hits",)})


@dataclass
class Store:
    """A store that answers batches when they are released, and records their ids."""

    pipelines: bool = False
    batches: list[Sequence[str]] = field(default_factory=list)
    observed: list[Observation] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    error_of: Callable[[str], MediatorError | None] = lambda _: None
    defect: BaseException | None = None

    def __post_init__(self) -> None:
        self.released.set()
        self.coalescer = Coalescer(
            self.read, self.write, lambda _: self.pipelines, SystemClock(), self.observed.append
        )

    async def read(self, calls: Sequence[Read]) -> list[Record | MediatorError | None]:
        version = await self._answer(calls)
        return [
            self.error_of(call.id) or Record(call.id, 1, {"main": version}, {"hits": version})
            for call in calls
        ]

    async def write(self, calls: Sequence[Write]) -> list[WriteResult | MediatorError]:
        await self._answer(calls)
        return [
            self.error_of(call.id)
            or WriteResult(Status.APPLIED, versions={"main": int(call.operation)})
            for call in calls
        ]

    async def _answer(self, calls: Sequence[Read] | Sequence[Write]) -> int:
        self.batches.append([call.id for call in calls])
        self.started.set()
        version = len(self.batches)
        await self.released.wait()
        if self.defect is not None:
            raise self.defect
        return version

    def start_read(
        self, id_: str, fields: tuple[str, ...] | None = None, bound: WaitBound = BOUND
    ) -> asyncio.Task[object]:
        return asyncio.create_task(self.coalescer.read(Read(FRAGMENT, id_, fields), bound))

    def start_write(self, id_: str, operation: int = 1) -> asyncio.Task[WriteResult]:
        write = Write(FRAGMENT, id_, WriteKind.UPDATE, str(operation), ("main",))
        return asyncio.create_task(self.coalescer.write(write, BOUND))


async def batches_started(store: Store, batches: int) -> None:
    """Wait until this many batches have started."""
    while len(store.batches) < batches:
        await store.started.wait()
        store.started.clear()


async def test_equal_reads_are_one_call() -> None:
    store = Store()
    tasks = [
        store.start_read("a"),
        store.start_read("b"),
        store.start_read("a"),
        store.start_read("a", ()),
    ]
    first, other, same, narrow = await asyncio.gather(*tasks)
    assert store.batches == [["a", "b", "a"]]
    assert first is same
    assert len({id(record) for record in (first, other, narrow)}) == 3
    [event] = store.observed
    assert isinstance(event, BatchFinished)
    assert (event.calls, event.operations, event.operation) == (3, 4, "read")


async def test_equal_writes_are_as_many_calls_in_their_order() -> None:
    store = Store()
    results = await asyncio.gather(*(store.start_write("a", number) for number in range(5)))
    assert store.batches == [["a"] * 5]
    assert [result.versions["main"] for result in results] == list(range(5))


async def test_no_read_joins_a_batch_that_has_begun() -> None:
    store = Store()
    store.released.clear()
    first = store.start_read("a")
    await batches_started(store, 1)
    second = store.start_read("a")
    for _ in range(10):
        await asyncio.sleep(0)
    assert store.batches == [["a"]]
    store.released.set()
    early, late = await asyncio.gather(first, second)
    assert store.batches == [["a"], ["a"]]
    assert isinstance(early, Record)
    assert isinstance(late, Record)
    assert (early.versions["main"], late.versions["main"]) == (1, 2)


async def test_reads_that_arrive_during_a_batch_go_together() -> None:
    store = Store()
    store.released.clear()
    tasks = [store.start_read("a")]
    await batches_started(store, 1)
    tasks += [store.start_read(id_) for id_ in "bcd"]
    await asyncio.sleep(0)
    store.released.set()
    await asyncio.gather(*tasks)
    assert store.batches == [["a"], ["b", "c", "d"]]


async def test_the_next_batch_starts_before_the_callers_of_the_last_resume() -> None:
    store = Store()
    store.released.clear()
    batch_counts: list[int] = []

    async def caller() -> None:
        await store.coalescer.read(Read(FRAGMENT, "a"), BOUND)
        batch_counts.append(len(store.batches))

    first = asyncio.create_task(caller())
    await batches_started(store, 1)
    second = store.start_read("b")
    await asyncio.sleep(0)
    store.released.set()
    await asyncio.gather(first, second)
    assert batch_counts == [2]


async def test_a_batch_that_hangs_delays_no_call_beyond_the_maximum_wait() -> None:
    store, bound = Store(), WaitBound(0.001)
    store.released.clear()
    tasks = [store.start_read("a", bound=bound)]
    await batches_started(store, 1)
    tasks.append(store.start_read("b", bound=bound))
    await batches_started(store, 2)
    store.released.set()
    await asyncio.gather(*tasks)
    assert store.batches == [["a"], ["b"]]


async def test_batches_of_a_pipelining_store_do_not_wait_for_one_another() -> None:
    store = Store(pipelines=True)
    store.released.clear()
    tasks = [store.start_read("a")]
    await batches_started(store, 1)
    tasks.append(store.start_read("a"))
    await batches_started(store, 2)
    store.released.set()
    await asyncio.gather(*tasks)
    assert store.batches == [["a"], ["a"]]


async def test_a_batch_has_a_maximum_of_calls() -> None:
    store = Store()
    ids = [str(number) for number in range(2 * MAX_CALLS + 1)]
    await asyncio.gather(*map(store.start_read, ids))
    assert [len(batch) for batch in store.batches] == [MAX_CALLS, MAX_CALLS, 1]
    assert [id_ for batch in store.batches for id_ in batch] == ids


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    store = Store()
    store.released.clear()
    cancelled, other, equal = store.start_read("a"), store.start_read("b"), store.start_read("a")
    await batches_started(store, 1)
    cancelled.cancel()
    store.released.set()
    assert isinstance(await other, Record)
    assert isinstance(await equal, Record)
    assert cancelled.cancelled() or cancelled.cancelling()


async def test_a_write_that_is_cancelled_before_its_batch_is_not_sent() -> None:
    store = Store()
    store.released.clear()
    first = store.start_write("a")
    await batches_started(store, 1)
    cancelled, other = store.start_write("b"), store.start_write("c")
    await asyncio.sleep(0)
    cancelled.cancel()
    store.released.set()
    await asyncio.gather(first, other)
    assert store.batches == [["a"], ["c"]]


async def test_a_batch_of_cancelled_calls_is_not_sent() -> None:
    store = Store()
    store.released.clear()
    first = store.start_write("a")
    await batches_started(store, 1)
    cancelled = store.start_write("b")
    await asyncio.sleep(0)
    cancelled.cancel()
    store.released.set()
    await first
    assert (await store.start_write("c")).status is Status.APPLIED
    assert store.batches == [["a"], ["c"]]


async def test_an_error_of_one_call_does_not_affect_the_others() -> None:
    store = Store(error_of=lambda id_: Locked("b is locked.") if id_ == "b" else None)
    results = await asyncio.gather(*map(store.start_write, "abc"), return_exceptions=True)
    assert [type(result) for result in results] == [WriteResult, Locked, WriteResult]


async def test_each_caller_gets_an_error_of_its_own() -> None:
    error = Unavailable("It does not answer.", system="postgres", retry_after_s=3.0)
    error.__cause__ = TimeoutError()
    store = Store(error_of=lambda _: error)
    tasks = store.start_read("a"), store.start_read("a"), store.start_read("b")
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert len({id(result) for result in (*results, error)}) == 4
    for result in results:
        assert isinstance(result, Unavailable)
        assert (result.detail, result.system, result.retry_after_s) == (
            "It does not answer.",
            "postgres",
            3.0,
        )
        assert isinstance(result.__cause__, TimeoutError)


async def test_callers_of_an_aborted_batch_get_an_error() -> None:
    store = Store(defect=asyncio.CancelledError())
    written = await asyncio.gather(store.start_write("a"), return_exceptions=True)
    read = await asyncio.gather(store.start_read("a"), return_exceptions=True)
    assert [type(result) for result in (*written, *read)] == [OutcomeUnknown, Unavailable]


async def test_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescer, "MAX_WAITING", 3)
    store = Store()
    store.released.clear()
    tasks = [store.start_write("a")]
    await batches_started(store, 1)
    tasks += [store.start_write("b", number) for number in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests) as refused:
        await store.start_write("c")
    assert refused.value.extra == {"limit": "batching"}
    store.released.set()
    await asyncio.gather(*tasks)
    assert (await store.start_write("d")).status is Status.APPLIED


async def test_a_wait_explains_itself() -> None:
    store = Store()
    await store.start_read("a")
    document = store.coalescer.describe(FRAGMENT, "read", BOUND)
    assert (document["system"], document["operation"]) == ("postgres", "read")
    assert document["constant_s"] > 0
    unused_document = store.coalescer.describe(FRAGMENT, "write", BOUND)
    assert (unused_document["wait_s"], unused_document["why"]) == (0, "Nothing is measured yet.")
