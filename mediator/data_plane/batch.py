"""Batches: many operations with one round trip for each system and direction.

Operations on one object keep their order; operations on different objects need none. So a batch
runs in rounds: each round takes, for every object, the longest run at the head of its queue that
one call can carry (reads, or writes of the same record). Joint writes go through their phases
together, one per object. Other operations that need several calls (read-modify-write), or a
transaction because of foreign keys, run alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from mediator.base.concurrency import result_or_error, results_or_raise
from mediator.base.errors import MediatorError, NotFound, Unavailable
from mediator.model.operations import (
    Delete,
    Get,
    Operation,
    Outcome,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.operations.calls import StoreCalls
from mediator.operations.intents import is_joint, lacks_fragment
from mediator.operations.merge import merge_records, outcome_of
from mediator.operations.torn_reads import TornReads
from mediator.routing.fragments import Steps, is_partial, plan_read
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, Read, Record, WriteResult
from mediator.transactions.foreign_keys import is_checked

if TYPE_CHECKING:
    from mediator.data_plane.executor import Executor

__all__ = ["BatchExecution"]

ALONE_AT_ONCE = 16
"""How many operations that run alone may be in flight at a time."""

_Answer: TypeAlias = Outcome | MediatorError


@dataclass(slots=True)
class _Planned:
    """One operation of the batch, with its plan if one call can carry it out."""

    index: int
    operation: Operation
    route: ClassRoute
    reads: tuple[Read, ...] = ()
    steps: Steps | None = None
    joint: bool = False

    @property
    def lane(self) -> Fragment | str | None:
        """Operations on one object share a round only if their lanes are equal; None: never."""
        if self.reads:
            return "read"
        return self.steps.first.fragment if self.steps else None


@dataclass(slots=True)
class _Round:
    reads: list[_Planned] = field(default_factory=list)
    writes: list[_Planned] = field(default_factory=list)
    joint: list[_Planned] = field(default_factory=list)
    alone: list[_Planned] = field(default_factory=list)

    def add(self, planned: _Planned) -> None:
        if planned.reads:
            self.reads.append(planned)
        elif planned.steps:
            self.writes.append(planned)
        elif planned.joint:
            self.joint.append(planned)
        else:
            self.alone.append(planned)


class BatchExecution:
    def __init__(
        self, plane: Executor, calls: StoreCalls, torn_reads: TornReads, *, whole: bool
    ) -> None:
        self._plane = plane
        self._calls = calls
        self._torn_reads = torn_reads
        self._whole = whole
        self._answers: dict[int, _Answer] = {}
        self._queues: dict[tuple[str, str], deque[_Planned]] = {}

    async def run(self, operations: Sequence[Operation]) -> list[_Answer]:
        """Return the outcome or the error of each operation, in their order."""
        await self._enqueue(operations)
        while self._queues:
            current = self._next_round()
            if not (current.reads or current.joint or current.alone):
                await self._write(current.writes)
                continue
            await asyncio.gather(
                self._read(current.reads),
                self._write(current.writes),
                self._write_jointly(current.joint),
                self._write_alone(current.alone),
            )
        return [self._answers[index] for index in range(len(operations))]

    async def _enqueue(self, operations: Sequence[Operation]) -> None:
        routes: dict[tuple[str, str], ClassRoute] = {}
        for index, operation in enumerate(operations):
            name = (operation.database, operation.class_name)
            try:
                if name not in routes:
                    routes[name] = await self._plane.route(*name)
                planned = self._plan(routes[name], index, operation)
            except MediatorError as error:
                self._answers[index] = error
                continue
            key = (operation.class_name, operation.id)
            if key in self._queues:
                self._queues[key].append(planned)
            else:
                self._queues[key] = deque((planned,))

    def _plan(self, route: ClassRoute, index: int, operation: Operation) -> _Planned:
        if isinstance(operation, Get):
            return _Planned(index, operation, route, reads=plan_read(route, operation))
        if (route.foreign_keys or route.referenced_by) and is_checked(route, operation):
            return _Planned(index, operation, route)
        if is_joint(route, operation):
            return _Planned(index, operation, route, joint=True)
        steps = (
            None
            if _needs_more_calls(route, operation)
            else self._plane.plan_single(route, operation)
        )
        return _Planned(index, operation, route, steps=steps)

    def _next_round(self) -> _Round:
        current = _Round()
        for key, queue in list(self._queues.items()):
            planned = queue.popleft()
            current.add(planned)
            while queue and planned.lane is not None and queue[0].lane is planned.lane:
                current.add(queue.popleft())
            if not queue:
                del self._queues[key]
        return current

    async def _read(self, planned: Sequence[_Planned]) -> None:
        if not planned:
            return
        records = iter(await self._calls.read_each([call for p in planned for call in p.reads]))
        torn: dict[tuple[ClassRoute, tuple[str, ...] | None], list[_Planned]] = {}
        for p in planned:
            answer = self._answers[p.index] = _merge(p, [next(records) for _ in p.reads])
            if isinstance(answer, Outcome) and (answer.partial or (self._whole and answer.pending)):
                assert isinstance(p.operation, Get)
                torn.setdefault((p.route, p.operation.fields), []).append(p)
        for same_resource in torn.values():
            await self._resolve_torn(same_resource)

    async def _resolve_torn(self, planned: Sequence[_Planned]) -> None:
        first = planned[0].operation
        assert isinstance(first, Get)
        torn = [answer for p in planned if isinstance(answer := self._answers[p.index], Outcome)]
        try:
            outcomes = await self._torn_reads.resolve(
                planned[0].route, first, torn, whole=self._whole
            )
        except Unavailable as error:
            self._answers.update(dict.fromkeys((p.index for p in planned), error))
            return
        for p, outcome in zip(planned, outcomes, strict=True):
            self._answers[p.index] = outcome or _missing(p.operation)

    async def _write(self, planned: Sequence[_Planned]) -> None:
        if not planned:
            return
        writes = [p.steps.first for p in planned if p.steps]
        results = await self._calls.write_each(writes)
        for p, write, result in zip(planned, writes, results, strict=True):
            # The object may lack a fragment that was added later: a joint write creates it.
            if isinstance(result, WriteResult) and lacks_fragment(p.route, write, result):
                await self._write_one(p)
            else:
                self._answers[p.index] = _answer(p, result)

    async def _write_jointly(self, planned: Sequence[_Planned]) -> None:
        if not planned:
            return
        operations = [(p.route, p.operation) for p in planned if not isinstance(p.operation, Get)]
        answers = await self._plane.joint.write_each(operations)
        for p, answer in zip(planned, answers, strict=True):
            self._answers[p.index] = answer

    async def _write_alone(self, planned: Sequence[_Planned]) -> None:
        slots = asyncio.Semaphore(ALONE_AT_ONCE)

        async def write(p: _Planned) -> None:
            async with slots:
                await self._write_one(p)

        await asyncio.gather(*map(write, planned))

    async def _write_one(self, planned: _Planned) -> None:
        assert not isinstance(planned.operation, Get)
        answer = await result_or_error(self._plane.write, planned.operation)
        self._answers[planned.index] = answer


def _needs_more_calls(route: ClassRoute, operation: WriteOperation) -> bool:
    """Whether a write takes more calls than its steps: on the object, or on its copy."""
    if isinstance(operation, Update):
        return is_partial(route, operation)
    return isinstance(operation, ReadModifyWrite) or (
        isinstance(operation, Delete) and route.copy is not None
    )


def _merge(planned: _Planned, records: Sequence[Record | MediatorError | None]) -> _Answer:
    operation = planned.operation
    assert isinstance(operation, Get)
    try:
        fragments = results_or_raise(records)
    except MediatorError as error:
        return error
    return merge_records(planned.route, operation, fragments) or _missing(operation)


def _missing(operation: Operation) -> NotFound:
    return NotFound(f"{operation.class_name}/{operation.id} does not exist.")


def _answer(planned: _Planned, result: WriteResult | MediatorError) -> _Answer:
    if isinstance(result, MediatorError):
        return result
    assert planned.steps is not None
    assert not isinstance(planned.operation, Get)
    try:
        return outcome_of(planned.route, planned.operation, planned.steps, [result])
    except MediatorError as error:
        return error
