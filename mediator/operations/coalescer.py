"""Coalescing: single operations on a class share store calls, if its schema says so.

The calls of one fragment and direction wait in a queue. A batch takes the oldest of them. Unless
the store is `Pipelining`, one batch runs at a time: calls that arrive meanwhile are in the next,
which starts before the first one ends only if calls have waited for as long as they may.
A call never joins a running batch, because the batch may read data older than the call::

    read 1 arrives   batch begins   write is acknowledged   read 2 arrives   batch ends
                     (read 1)                               waits            read 2 begins

Each caller has its own future. Cancelling one affects no other; its call is dropped if nobody else
waits for it and its batch has not started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any, Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from mediator.base.clock import Clock
from mediator.base.errors import MediatorError, OutcomeUnknown, TooManyRequests, Unavailable
from mediator.base.observation import BatchFinished, Observer
from mediator.operations.batch_wait import BatchWait
from mediator.schema.batching import Direction, WaitBound
from mediator.stores.port import Fragment, Read, Record, Write, WriteResult

__all__ = ["Coalescer"]

MAX_WAITING: Final = 2_000
"""Limit of operations that wait in one queue."""

_C = TypeVar("_C", Read, Write)
_R = TypeVar("_R")

_Send: TypeAlias = Callable[[Sequence[_C]], Awaitable[Sequence[_R | MediatorError]]]


@dataclass(eq=False, slots=True)
class _PendingCall(Generic[_C, _R]):
    """A call, its arrival (monotonic seconds), and the futures that wait for its result.

    `context` is the caller's: spans of the batch go to the request that waited longest.
    """

    call: _C
    since_s: float
    context: Context
    futures: list[asyncio.Future[_R]] = field(default_factory=list)

    @property
    def is_awaited(self) -> bool:
        return not all(future.done() for future in self.futures)


class _Queue(Generic[_C, _R]):
    """The calls of one direction to one fragment that wait for their batch."""

    def __init__(
        self,
        direction: Direction,
        bound: WaitBound,
        send: _Send[_C, _R],
        clock: Clock,
        observe: Observer,
        *,
        pipelines: bool,
    ) -> None:
        self.wait = BatchWait(bound, pipelines)
        self._max_batches = inf if pipelines else 1
        self._direction = direction
        self._send: _Send[_C, _R] = send
        self._clock = clock
        self._observe = observe
        self._started_s = -inf
        self._waiting: dict[Hashable, _PendingCall[_C, _R]] = {}
        self._operations = 0
        self._timer: asyncio.Handle | None = None
        self._timer_s = inf
        self._batches: set[asyncio.Task[None]] = set()

    def add(self, call: _C, key: Hashable) -> asyncio.Future[_R]:
        """Add a call, or join an equal waiting call.

        Raises:
            TooManyRequests: Too many wait already; nothing was done.
        """
        if self._operations >= MAX_WAITING:
            queue_name = f"{call.fragment.class_name} on {call.fragment.system}"
            detail = f"{MAX_WAITING} operations on {queue_name} wait for a store call already."
            raise TooManyRequests(detail, extra={"limit": "batching"})
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _PendingCall(
                call, self._clock.monotonic(), copy_context()
            )
        future: asyncio.Future[_R] = asyncio.get_running_loop().create_future()
        waiting.futures.append(future)
        self._operations += 1
        # Other calls change nothing: the first call of the next batch decides when it is due.
        if self._timer is None or len(self._waiting) >= self.wait.max_calls:
            self._plan()
        return future

    def _plan(self, *, collected: bool = False) -> None:
        """Schedule the next batch for when it is due, unless it is scheduled already.

        `collected`: Calls have waited enough, so the batch need not await the end of this tick.
        """
        if not self._waiting:
            return
        due_s = self._due_s()
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
            self._timer = None
        loop, delay_s = asyncio.get_running_loop(), due_s - self._clock.monotonic()
        self._timer_s = due_s
        if delay_s > 0:
            self._timer = loop.call_later(delay_s, self._start_batch)
        elif collected:
            self._start_batch()
        else:
            # Not at once: calls of the same tick of the event loop belong to the batch as well.
            self._timer = loop.call_soon(self._start_batch)

    def _due_s(self) -> float:
        """Return the monotonic time at which the next batch is due."""
        if len(self._batches) >= self._max_batches:
            first = next(iter(self._waiting.values()))
            return first.since_s + self.wait.bound.max_wait_s
        if len(self._waiting) >= self.wait.max_calls:
            return -inf
        return self._started_s + self.wait.wait_s

    def _start_batch(self) -> None:
        self._timer = None
        next_calls = dict(islice(self._waiting.items(), self.wait.max_calls))
        for key, waiting in next_calls.items():
            del self._waiting[key]
            self._operations -= len(waiting.futures)
        batch = [waiting for waiting in next_calls.values() if waiting.is_awaited]
        if batch:
            self._started_s = self._clock.monotonic()
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._execute(batch), context=batch[0].context)
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)
        self._plan()

    async def _execute(self, batch: Sequence[_PendingCall[_C, _R]]) -> None:
        try:
            results = await self._results(batch)
            for waiting, result in zip(batch, results, strict=True):
                _resolve(waiting.futures, result)
        except BaseException:
            # Callers wait only for their futures, and must not wait for ever.
            for waiting in batch:
                _resolve(waiting.futures, self._abort_error(waiting.call))
            raise

    async def _results(self, batch: Sequence[_PendingCall[_C, _R]]) -> Sequence[_R | MediatorError]:
        started_s = self._clock.monotonic()
        try:
            return await self._send([waiting.call for waiting in batch])
        finally:
            self._measure(batch, started_s)
            self._batches -= {asyncio.current_task()}
            # Before the callers resume, so that the store works while they are answered.
            self._plan(collected=True)

    def _abort_error(self, call: Read | Write) -> MediatorError:
        error = OutcomeUnknown if self._direction == "write" else Unavailable
        return error("The batch was aborted.", system=call.fragment.system)

    def _measure(self, batch: Sequence[_PendingCall[_C, _R]], started_s: float) -> None:
        ended_s = self._clock.monotonic()
        operations = sum(len(waiting.futures) for waiting in batch)
        self.wait.executed(len(batch), operations, ended_s - started_s, ended_s)
        first = batch[0]
        fragment = first.call.fragment
        self._observe(
            BatchFinished(
                fragment.system,
                fragment.database,
                fragment.class_name,
                self._direction,
                len(batch),
                operations,
                started_s - first.since_s,
            )
        )


class Coalescer:
    """Collects single reads and writes, and sends them together.

    `read_each` and `write_each` send the calls of a batch, all of one fragment; each call gets
    its result or error. `pipelines` says whether a system lets concurrent calls share round trips.
    """

    def __init__(
        self,
        read_each: _Send[Read, Record | None],
        write_each: _Send[Write, WriteResult],
        pipelines: Callable[[str], bool],
        clock: Clock,
        observe: Observer,
    ) -> None:
        self._pipelines = pipelines
        self._read_each = read_each
        self._write_each = write_each
        self._clock = clock
        self._observe = observe
        # Weak: the queues of a routing model go with its fragments.
        self._reads: WeakKeyDictionary[Fragment, _Queue[Read, Record | None]]
        self._writes: WeakKeyDictionary[Fragment, _Queue[Write, WriteResult]]
        self._reads, self._writes = WeakKeyDictionary(), WeakKeyDictionary()

    async def read(self, call: Read, bound: WaitBound) -> Record | None:
        """Read a record in the next batch; equal reads share a call."""
        queue = self._reads.get(call.fragment)
        if queue is None:
            queue = self._queue("read", call, bound, self._read_each)
            self._reads[call.fragment] = queue
        return await queue.add(call, (call.id, call.fields))

    async def write(self, call: Write, bound: WaitBound) -> WriteResult:
        """Write a record in the next batch, after earlier writes to it."""
        queue = self._writes.get(call.fragment)
        if queue is None:
            queue = self._queue("write", call, bound, self._write_each)
            self._writes[call.fragment] = queue
        return await queue.add(call, object())

    def _queue(
        self, direction: Direction, call: _C, bound: WaitBound, send: _Send[_C, _R]
    ) -> _Queue[_C, _R]:
        pipelines = self._pipelines(call.fragment.system)
        return _Queue(direction, bound, send, self._clock, self._observe, pipelines=pipelines)

    def describe(
        self, fragment: Fragment, direction: Direction, bound: WaitBound
    ) -> dict[str, Any]:
        """Return the current wait and its inputs as JSON."""
        queues = self._reads if direction == "read" else self._writes
        queue = queues.get(fragment)
        wait = BatchWait(bound) if queue is None else queue.wait
        return {"system": fragment.system, "operation": direction, **wait.document()}


def _resolve(futures: Sequence[asyncio.Future[_R]], result: _R | MediatorError) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(result, MediatorError):
            # Each caller gets its own copy, because raising an error changes its traceback.
            future.set_exception(_copy_of(result))
        else:
            future.set_result(result)


def _copy_of(error: MediatorError) -> MediatorError:
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied
