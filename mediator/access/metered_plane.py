"""A data plane within a tenant's limits: cost of queries, number of objects.

The number of objects is known without a round trip (`mediator.access.stored_objects`). At the limit
an existing object can still be replaced, changed and deleted: a put without a condition is bound to
an existing object, and refused if missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

from mediator.access.metering import Meter, refusal
from mediator.base.errors import MediatorError, PreconditionFailed, StillReferenced, TooCostly
from mediator.data_plane.port import DataPlane
from mediator.model.operations import (
    ANYTHING,
    NEVER,
    Condition,
    Create,
    Delete,
    Get,
    Operation,
    Outcome,
    Put,
    WriteOperation,
)
from mediator.model.query import Query
from mediator.query.budget import Ceiling
from mediator.query.execution import QueryResult
from mediator.routing.freshness import ANY, ReadPreference
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.transactions.model import CommitRequest

__all__ = [
    "MayReadAll",
    "MeteredPlane",
    "NarrowedPlane",
    "Transact",
    "hide_references",
    "meter_transactions",
    "visible_error",
]

Transact: TypeAlias = Callable[[CommitRequest], Awaitable[list[Outcome]]]
"""Executes a transaction."""

MayReadAll: TypeAlias = Callable[[str, str], bool]
"""Whether every object of a class of a database may be shown."""

_A = TypeVar("_A", bound=Outcome | MediatorError)

_MAX_PAUSE_S: Final = 1.0
"""Limit of the pause of a query whose tenant exceeds its rate; a longer one means refusal."""

_PRESENT: Final = Condition(present=True)


class NarrowedPlane:
    """The methods that a narrowing data plane leaves unchanged."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    @property
    def model(self) -> RoutingModel:
        return self._plane.model

    async def route(self, database: str, class_name: str) -> ClassRoute:
        return await self._plane.route(database, class_name)

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        return await self._plane.read(operation, preference)

    async def recall(self, operation: WriteOperation, *, whole: bool = False) -> Outcome | None:
        """Return a recorded answer, the caller's own: an operation's id contains its subject."""
        return await self._plane.recall(operation, whole=whole)


class MeteredPlane(NarrowedPlane):
    """Implements `mediator.data_plane.port.DataPlane` within a tenant's limits."""

    def __init__(self, plane: DataPlane, meter: Meter) -> None:
        super().__init__(plane)
        self._meter = meter

    async def write(self, operation: WriteOperation) -> Outcome:
        """Raises `StorageFull` if it would create one object too many."""

        async def write(allowed: Sequence[Operation]) -> list[Outcome]:
            [single] = allowed
            assert not isinstance(single, Get)
            return [await self._plane.write(single)]

        [outcome] = await _execute_within_room(self._meter, self.model, [operation], write)
        return outcome

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        """Do many operations; those that would create one object too many are `StorageFull`."""

        async def write(allowed: Sequence[Operation]) -> list[Outcome | MediatorError]:
            answers = await self._plane.batch(allowed, whole=whole)
            for index, (sent, bound) in enumerate(zip(operations, allowed, strict=True)):
                # The condition is not the caller's: it was added for lack of room.
                if sent is not bound and isinstance(answers[index], PreconditionFailed):
                    answers[index] = self._meter.full()
            return answers

        return await _execute_within_room(self._meter, self.model, operations, write)

    async def query(
        self, query: Query, preference: ReadPreference = ANY, ceiling: Ceiling | None = None
    ) -> QueryResult:
        """Raises `TooManyRequests` if the tenant's recent queries examined too many records."""
        limits = self._meter.limits
        ceiling = ceiling or Ceiling(limits.query_rows, limits.query_seconds)
        await self._pause()
        try:
            answer = await self._plane.query(query, preference, ceiling)
        except TooCostly as error:
            self._charge(error)
            raise
        self._meter.spend(answer.budget.rows)
        return answer

    async def _pause(self) -> None:
        debt_s = self._meter.debt_s
        if debt_s > _MAX_PAUSE_S:
            rate = self._meter.limits.rows_rate
            why = f"queries may examine {rate:g} records in a second."
            raise refusal("rows_rate", why, debt_s)
        if debt_s > 0:
            await asyncio.sleep(debt_s)

    def _charge(self, error: TooCostly) -> None:
        """Charge for an aborted query.

        Beyond rows or time: its whole limit; beyond memory: the records examined.
        """
        limits, extra = self._meter.limits, error.extra
        for limit, name in (("query_rows", "rows"), ("query_seconds", "seconds")):
            if name in extra and extra[name] == getattr(limits, limit):
                extra["limit"] = limit
        time = (limits.rows_rate or 0) * extra.get("seconds", 0)
        self._meter.spend(extra.get("rows") or error.examined or time)


def meter_transactions(transact: Transact, meter: Meter, model: RoutingModel) -> Transact:
    async def run(transaction: CommitRequest) -> list[Outcome]:
        async def write(allowed: Sequence[Operation]) -> list[Outcome]:
            writes = tuple(write for write in allowed if not isinstance(write, Get))
            return await transact(replace(transaction, writes=writes))

        return await _execute_within_room(meter, model, transaction.writes, write)

    return run


async def _execute_within_room(
    meter: Meter,
    model: RoutingModel,
    operations: Sequence[Operation],
    execute: Callable[[Sequence[Operation]], Awaitable[list[_A]]],
) -> list[_A]:
    """Execute operations with at most as many creations as there is room for."""
    allowed = _bind_beyond_room(meter.room, model, operations)
    # Reserved before and released afterwards: concurrent requests share the room.
    with meter.reserving(sum(map(_may_create, allowed))):
        try:
            answers = await execute(allowed)
        except PreconditionFailed:
            if any(sent is not bound for sent, bound in zip(operations, allowed, strict=True)):
                raise meter.full() from None
            raise
        meter.adjust(_growth(operations, answers))
    return answers


def _bind_beyond_room(
    room: float, model: RoutingModel, operations: Sequence[Operation]
) -> Sequence[Operation]:
    """Return operations; those beyond the room are bound to create nothing."""
    if room >= len(operations):
        return operations
    allowed: list[Operation] = []
    for operation in operations:
        creates = _may_create(operation)
        allowed.append(_bind(model, operation) if creates and room <= 0 else operation)
        room -= creates
    return allowed


def _may_create(operation: Operation) -> bool:
    if isinstance(operation, Put):
        return not operation.condition.versions and operation.condition.present is not True
    return isinstance(operation, Create)


def _bind(model: RoutingModel, operation: Operation) -> Operation:
    """Bind a write that may create to an existing object, and one that must create to `NEVER`."""
    if not isinstance(operation, Create | Put):
        return operation
    database = model.databases.get(operation.database)
    route = None if database is None else database.classes.get(operation.class_name)
    has_to_match = route is not None and route.schema.require_if_match
    replaces = isinstance(operation, Put) and operation.condition == ANYTHING and not has_to_match
    head = (*operation.head[:4], _PRESENT if replaces else NEVER, operation.fingerprint)
    return Put(*head, operation.values, isinstance(operation, Put) and operation.unchecked)


def _growth(operations: Sequence[Operation], answers: Sequence[Outcome | MediatorError]) -> int:
    growth = 0
    for operation, answer in zip(operations, answers, strict=True):
        if isinstance(answer, Outcome) and not answer.replayed:
            growth += answer.created - isinstance(operation, Delete)
    return growth


def visible_error(
    error: StillReferenced, database: str, may_read_all: MayReadAll
) -> StillReferenced:
    """Return the visible part of a refusal by foreign keys, which hold for everybody.

    Referring objects may be of classes that the caller may not read, or of other owners. Then the
    refusal only says that some object refers.
    """
    return error.shown_to(partial(may_read_all, database))


def hide_references(transact: Transact, may_read_all: MayReadAll) -> Transact:
    """Return an execution of transactions whose refusals hide invisible references."""

    async def run(transaction: CommitRequest) -> list[Outcome]:
        try:
            return await transact(transaction)
        except StillReferenced as error:
            raise visible_error(error, transaction.database, may_read_all) from None

    return run
