"""Batches: many operations with one round trip for each system and direction.

Operations on one object keep their order; operations on different objects need none. So a batch
runs in waves: each wave takes, for every object, the longest run at the head of its queue that can
travel in one call sequence (reads, or writes to one and the same record). Writes that concern
several systems go through their phases together, one of each object. What else needs more than one
call (revisions) travels alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from mediator.base.errors import MediatorError, NotFound, Unavailable
from mediator.model.operations import (
    Delete,
    Get,
    Operation,
    Outcome,
    ReadModifyWrite,
    WriteOperation,
)
from mediator.operations.calls import StoreCalls
from mediator.operations.if_match import outcome_of
from mediator.operations.joint import JointWrites, is_joint, lacks_fragment
from mediator.operations.merge import merge_records
from mediator.routing.fragments import Steps, plan_read
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, Read, Record, Write, WriteResult

__all__ = ["run_batch"]

ALONE_AT_ONCE = 16
"""How many operations that travel alone are under way at the same time."""

_Answer: TypeAlias = Outcome | MediatorError


class Single(Protocol):
    """What a batch needs of the plane that does single operations."""

    async def route(self, database: str, class_name: str) -> ClassRoute:
        """Find where a class lives."""

    @property
    def joint(self) -> JointWrites:
        """What carries out writes over several systems."""

    def plan_simply(self, route: ClassRoute, operation: WriteOperation) -> Steps | None:
        """Plan a write that one round trip can carry out; None if it takes more."""

    async def write(self, operation: WriteOperation) -> Outcome:
        """Carry out one write."""

    async def resolve_torn(
        self,
        route: ClassRoute,
        resource: Get,
        outcomes: Sequence[Outcome | None],
        *,
        whole: bool = False,
    ) -> list[Outcome | None]:
        """Look at partial outcomes of one resource again; raises `Unavailable`."""


@dataclass(slots=True)
class _Planned:
    """One operation of the batch, with its plan if it can travel with others."""

    index: int
    operation: Operation
    route: ClassRoute
    reads: tuple[Read, ...] = ()
    steps: Steps | None = None
    joint: bool = False

    @property
    def lane(self) -> Fragment | str | None:
        """Operations on one object may share a wave only if they are in the same lane."""
        if self.reads:
            return "read"
        return self.steps.first.fragment if self.steps else None


@dataclass(slots=True)
class _Wave:
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


async def run_batch(
    plane: Single, calls: StoreCalls, operations: Sequence[Operation], *, whole: bool
) -> list[_Answer]:
    """Do all operations; each gets its outcome or its error, in the order of the batch.

    Args:
        plane: Does single operations.
        calls: Sends store calls.
        operations: The operations.
        whole: Reads resolve writes over several systems that they meet.
    """
    answers: dict[int, _Answer] = {}
    queues: dict[tuple[str, str], deque[_Planned]] = {}
    routes: dict[tuple[str, str], ClassRoute] = {}
    for index, operation in enumerate(operations):
        place = (operation.database, operation.class_name)
        try:
            if place not in routes:
                routes[place] = await plane.route(*place)
            planned = _plan(plane, routes[place], index, operation)
        except MediatorError as error:
            answers[index] = error
        else:
            key = (operation.class_name, operation.id)
            if key in queues:
                queues[key].append(planned)
            else:
                queues[key] = deque((planned,))
    while queues:
        wave = _next_wave(queues)
        if not (wave.reads or wave.joint or wave.alone):
            await _write(plane, calls, wave.writes, answers)
            continue
        await asyncio.gather(
            _read(plane, calls, wave.reads, answers, whole=whole),
            _write(plane, calls, wave.writes, answers),
            _jointly(plane, wave.joint, answers),
            _alone(plane, wave.alone, answers),
        )
    return [answers[index] for index in range(len(operations))]


def _plan(plane: Single, route: ClassRoute, index: int, operation: Operation) -> _Planned:
    if isinstance(operation, Get):
        return _Planned(index, operation, route, reads=plan_read(route, operation))
    if is_joint(route, operation):
        return _Planned(index, operation, route, joint=True)
    steps = None if _takes_more(route, operation) else plane.plan_simply(route, operation)
    return _Planned(index, operation, route, steps=steps)


def _takes_more(route: ClassRoute, operation: WriteOperation) -> bool:
    """Whether a write takes more than its steps: a look at the object, or at its copy."""
    return isinstance(operation, ReadModifyWrite) or (
        isinstance(operation, Delete) and route.copy is not None
    )


def _next_wave(queues: dict[tuple[str, str], deque[_Planned]]) -> _Wave:
    wave = _Wave()
    for key, queue in list(queues.items()):
        planned = queue.popleft()
        wave.add(planned)
        while queue and planned.lane is not None and queue[0].lane is planned.lane:
            wave.add(queue.popleft())
        if not queue:
            del queues[key]
    return wave


async def _read(
    plane: Single,
    calls: StoreCalls,
    planned: Sequence[_Planned],
    answers: dict[int, _Answer],
    *,
    whole: bool,
) -> None:
    if not planned:
        return
    records = iter(await calls.read_each([call for p in planned for call in p.reads]))
    doubtful: dict[tuple[ClassRoute, tuple[str, ...] | None], list[_Planned]] = {}
    for p in planned:
        answer = answers[p.index] = _object(p, [next(records) for _ in p.reads])
        if isinstance(answer, Outcome) and (answer.partial or (whole and answer.pending)):
            assert isinstance(p.operation, Get)
            doubtful.setdefault((p.route, p.operation.fields), []).append(p)
    for alike in doubtful.values():
        await _look_again(plane, alike, answers, whole=whole)


def _object(planned: _Planned, records: Sequence[Record | MediatorError | None]) -> _Answer:
    parts: list[Record | None] = []
    for record in records:
        if isinstance(record, MediatorError):
            return record
        parts.append(record)
    operation = planned.operation
    assert isinstance(operation, Get)
    return merge_records(planned.route, operation, parts) or _missing(operation)


async def _look_again(
    plane: Single, alike: Sequence[_Planned], answers: dict[int, _Answer], *, whole: bool
) -> None:
    """Look again at objects of which the same was read."""
    first = alike[0].operation
    assert isinstance(first, Get)
    seen = [one for p in alike if isinstance(one := answers[p.index], Outcome)]
    try:
        found = await plane.resolve_torn(alike[0].route, first, seen, whole=whole)
    except Unavailable as error:
        answers.update(dict.fromkeys((p.index for p in alike), error))
        return
    for p, outcome in zip(alike, found, strict=True):
        answers[p.index] = outcome or _missing(p.operation)


def _missing(operation: Operation) -> NotFound:
    return NotFound(f"{operation.class_name}/{operation.id} does not exist.")


async def _write(
    plane: Single, calls: StoreCalls, planned: Sequence[_Planned], answers: dict[int, _Answer]
) -> None:
    if not planned:
        return
    writes: list[Write] = [p.steps.first for p in planned if p.steps]
    for p, write, result in zip(planned, writes, await calls.write_each(writes), strict=True):
        if isinstance(result, WriteResult) and lacks_fragment(p.route, write, result):
            await _one(plane, p, answers)
        else:
            answers[p.index] = _written(p, result)


def _written(planned: _Planned, result: WriteResult | MediatorError) -> _Answer:
    if isinstance(result, MediatorError):
        return result
    assert planned.steps is not None
    assert not isinstance(planned.operation, Get)
    try:
        return outcome_of(planned.route, planned.operation, planned.steps, [result])
    except MediatorError as error:
        return error


async def _jointly(plane: Single, planned: Sequence[_Planned], answers: dict[int, _Answer]) -> None:
    if not planned:
        return
    operations = [(p.route, p.operation) for p in planned if not isinstance(p.operation, Get)]
    for p, answer in zip(planned, await plane.joint.write_each(operations), strict=True):
        answers[p.index] = answer


async def _alone(plane: Single, planned: Sequence[_Planned], answers: dict[int, _Answer]) -> None:
    slots = asyncio.Semaphore(ALONE_AT_ONCE)

    async def in_turn(p: _Planned) -> None:
        async with slots:
            await _one(plane, p, answers)

    await asyncio.gather(*(in_turn(p) for p in planned))


async def _one(plane: Single, planned: _Planned, answers: dict[int, _Answer]) -> None:
    operation = planned.operation
    assert not isinstance(operation, Get)
    try:
        answers[planned.index] = await plane.write(operation)
    except MediatorError as error:
        answers[planned.index] = error
