"""Coalescing: single operations on a class share store calls, if its schema says so.

The calls of one fragment and direction wait in a queue. A batch takes the oldest of them. Unless
the store is `Pipelining`, one batch is under way at a time: what arrives meanwhile is in the next,
which begins before the other one has ended only if calls have waited as long as they may.
A call never joins a batch that has begun, because what that reads may be older than the call::

    read 1 arrives   batch begins   write is acknowledged   read 2 arrives   batch ends
                     (read 1)                               waits            read 2 begins

Each caller has a future of its own. One that is cancelled takes nothing from the others; its call
is left out if nobody else waits for it and its batch has not begun.
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

MOST_WAITING: Final = 2_000
"""Operations that wait in one queue at most."""

_C = TypeVar("_C", Read, Write)
_R = TypeVar("_R")

_Send: TypeAlias = Callable[[Sequence[_C]], Awaitable[Sequence[_R | MediatorError]]]


@dataclass(eq=False, slots=True)
class _Waiting(Generic[_C, _R]):
    """A call, when it arrived (monotonic seconds), and those that wait for its result.

    `context` is that of its caller: spans of the batch go to the request that waited longest.
    """

    call: _C
    since_s: float
    context: Context
    futures: list[asyncio.Future[_R]] = field(default_factory=list)

    @property
    def is_wanted(self) -> bool:
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
        self._at_once = inf if pipelines else 1
        self._direction = direction
        self._send: _Send[_C, _R] = send
        self._clock = clock
        self._observe = observe
        self._begun_s = -inf
        self._waiting: dict[Hashable, _Waiting[_C, _R]] = {}
        self._operations = 0
        self._timer: asyncio.Handle | None = None
        self._timer_s = inf
        self._batches: set[asyncio.Task[None]] = set()

    def add(self, call: _C, key: Hashable) -> asyncio.Future[_R]:
        """Add a call, or join an equal one that waits.

        Raises:
            TooManyRequests: Too many wait already; nothing was done.
        """
        if self._operations >= MOST_WAITING:
            what = f"{call.fragment.class_name} on {call.fragment.system}"
            detail = f"{MOST_WAITING} operations on {what} wait for a store call already."
            raise TooManyRequests(detail, extra={"limit": "batching"})
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Waiting(call, self._clock.monotonic(), copy_context())
        future: asyncio.Future[_R] = asyncio.get_running_loop().create_future()
        waiting.futures.append(future)
        self._operations += 1
        # Else a call changes nothing: when the next batch is due depends on the first of its calls.
        if self._timer is None or len(self._waiting) >= self.wait.most:
            self._plan()
        return future

    def _plan(self, *, collected: bool = False) -> None:
        """Have the next batch begin when it is due, unless it will anyway.

        `collected`: What waits has had its time, so that the rest of this tick need not be awaited.
        """
        if not self._waiting:
            return
        due_s = self._due_s()
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
            self._timer = None
        loop, left_s = asyncio.get_running_loop(), due_s - self._clock.monotonic()
        self._timer_s = due_s
        if left_s > 0:
            self._timer = loop.call_later(left_s, self._begin)
        elif collected:
            self._begin()
        else:
            # Not here: what arrives in the same tick of the event loop belongs to it as well.
            self._timer = loop.call_soon(self._begin)

    def _due_s(self) -> float:
        """Return the monotonic time at which the next batch is to begin."""
        if len(self._batches) >= self._at_once:
            first = next(iter(self._waiting.values()))
            return first.since_s + self.wait.bound.max_wait_s
        if len(self._waiting) >= self.wait.most:
            return -inf
        return self._begun_s + self.wait.wait_s

    def _begin(self) -> None:
        self._timer = None
        taken = dict(islice(self._waiting.items(), self.wait.most))
        for key, waiting in taken.items():
            del self._waiting[key]
            self._operations -= len(waiting.futures)
        batch = [waiting for waiting in taken.values() if waiting.is_wanted]
        if batch:
            self._begun_s = self._clock.monotonic()
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._execute(batch), context=batch[0].context)
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)
        self._plan()

    async def _execute(self, batch: Sequence[_Waiting[_C, _R]]) -> None:
        try:
            results = await self._results(batch)
            for waiting, result in zip(batch, results, strict=True):
                _resolve(waiting.futures, result)
        except BaseException:
            # Callers wait for nothing else: they must not wait for ever.
            for waiting in batch:
                _resolve(waiting.futures, self._broken_off(waiting.call))
            raise

    async def _results(self, batch: Sequence[_Waiting[_C, _R]]) -> Sequence[_R | MediatorError]:
        begun_s = self._clock.monotonic()
        try:
            return await self._send([waiting.call for waiting in batch])
        finally:
            self._measure(batch, begun_s)
            self._batches -= {asyncio.current_task()}
            # Before the callers go on, so that the store works while they are answered.
            self._plan(collected=True)

    def _broken_off(self, call: Read | Write) -> MediatorError:
        error = OutcomeUnknown if self._direction == "write" else Unavailable
        return error("The batch was broken off.", system=call.fragment.system)

    def _measure(self, batch: Sequence[_Waiting[_C, _R]], begun_s: float) -> None:
        ended_s = self._clock.monotonic()
        operations = sum(len(waiting.futures) for waiting in batch)
        self.wait.executed(len(batch), operations, ended_s - begun_s, ended_s)
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
                begun_s - first.since_s,
            )
        )


class Coalescer:
    """Collects single reads and writes, and sends them together.

    `read_each` and `write_each` send the calls of a batch, all of one fragment; each gets its
    result, or its error. `pipelines` says whether a system lets concurrent calls share round trips.
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
        """Read a record in the next batch; equal reads are one."""
        queue = self._reads.get(call.fragment)
        if queue is None:
            queue = self._queue("read", call, bound, self._read_each)
            self._reads[call.fragment] = queue
        return await queue.add(call, (call.id, call.fields))

    async def write(self, call: Write, bound: WaitBound) -> WriteResult:
        """Write a record in the next batch, after those to it that have arrived before."""
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
        """Return the present wait as JSON, with what it was computed from."""
        queues = self._reads if direction == "read" else self._writes
        queue = queues.get(fragment)
        wait = BatchWait(bound) if queue is None else queue.wait
        return {"system": fragment.system, "operation": direction, **wait.document()}


def _resolve(futures: Sequence[asyncio.Future[_R]], result: _R | MediatorError) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(result, MediatorError):
            # Each caller gets an error of its own, because raising one changes it (its traceback).
            future.set_exception(_copy_of(result))
        else:
            future.set_result(result)


def _copy_of(error: MediatorError) -> MediatorError:
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied
