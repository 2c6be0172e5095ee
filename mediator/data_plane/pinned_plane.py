"""A data plane of requests that are pinned to a former version of their database's schema.

Requests and answers use the names of that version; the data plane below knows only the present
ones. A put must not remove fields that its version lacks, so it replaces the fields of the version,
and creates an object only if none exists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from mediator.base.errors import AlreadyExists, MediatorError, NotFound, PreconditionFailed
from mediator.data_plane.pinned_operations import PinnedOperation
from mediator.data_plane.pinned_queries import PinnedQuery, changed_meanwhile
from mediator.data_plane.port import DataPlane, run_lanes
from mediator.model.operations import (
    ANYTHING,
    Condition,
    Create,
    Get,
    Operation,
    Outcome,
    Put,
    WriteOperation,
)
from mediator.model.query import Query
from mediator.query.budget import Ceiling
from mediator.query.execution import QueryResult
from mediator.routing.former_schemas import FormerSchema
from mediator.routing.freshness import ANY, WHOLE, ReadPreference
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.transactions.model import CommitRequest

__all__ = ["PinnedPlane"]

_Transact: TypeAlias = Callable[[CommitRequest], Awaitable[list[Outcome]]]

_ATTEMPTS: Final = 2
"""How often a put is tried: its object may be created or deleted in between."""

_ABSENT: Final = Condition(present=False)


class PinnedPlane:
    """Implements `mediator.data_plane.port.DataPlane` by the names of a version."""

    def __init__(self, plane: DataPlane, schema: FormerSchema) -> None:
        self._plane = plane
        self._schema = schema

    @property
    def model(self) -> RoutingModel:
        """The model of the version, which has this one database."""
        return self._schema.model

    async def route(self, database: str, class_name: str) -> ClassRoute:
        """Raises `NotFound` if the version has no such class."""
        await self._plane.route(database, class_name)
        return self._schema.route_of(class_name)

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        pinned = self._pin(operation)
        assert isinstance(pinned.present, Get)
        return pinned.outcome(await self._plane.read(pinned.present, preference))

    async def write(self, operation: WriteOperation) -> Outcome:
        pinned = self._pin(operation)
        try:
            return pinned.outcome(await self._write(pinned))
        except MediatorError as error:
            raise pinned.error(error) from None

    async def _write(self, pinned: PinnedOperation) -> Outcome:
        write = pinned.present
        assert not isinstance(write, Get)
        if isinstance(write, Create):
            return await self._plane.write(pinned.creation())
        if not pinned.keeps_hidden:
            self._check_complete(pinned)
            return await self._plane.write(write)
        if write.condition.present is False or pinned.requires_condition:
            return await self._plane.write(pinned.creation())
        if write.condition != ANYTHING:
            return await self._plane.write(pinned.replacement())
        return await self._replace_or_create(pinned)

    async def _replace_or_create(self, pinned: PinnedOperation) -> Outcome:
        """Put over hidden fields; of several attempts under its operation id one takes effect.

        Raises:
            AlreadyExists: The object exists, and the request may not replace it; or other writers
                keep creating and deleting it.
        """
        replacement = pinned.replacement()
        for _ in range(_ATTEMPTS):
            try:
                return await self._plane.write(replacement)
            except NotFound:
                creation = replace(pinned.creation(), condition=_ABSENT)
            with suppress(PreconditionFailed):
                return await self._plane.write(creation)
        raise AlreadyExists(f"{replacement.class_name}/{replacement.id} exists.")

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        """Do many operations; those on objects put over hidden fields one by one, in order."""
        pinned = [self._pin(operation) for operation in operations]
        lanes: dict[tuple[str, str], dict[int, Operation]] = {}
        for pin in pinned:
            if pin.keeps_hidden:
                lanes[pin.operation.class_name, pin.operation.id] = {}
        together: dict[int, Operation] = {}
        for index, operation in enumerate(operations):
            lanes.get((operation.class_name, operation.id), together)[index] = operation
        batch = self._batch([pinned[index] for index in together], whole=whole)
        answers = await run_lanes(self, lanes.values(), together, batch, whole=whole)
        return [answers[index] for index in range(len(operations))]

    async def _batch(
        self, pinned: Sequence[PinnedOperation], *, whole: bool
    ) -> list[Outcome | MediatorError]:
        planned = [self._plan(pin) for pin in pinned]
        allowed = [plan for plan in planned if not isinstance(plan, MediatorError)]
        results = iter(await self._plane.batch(allowed, whole=whole) if allowed else [])
        answers = [plan if isinstance(plan, MediatorError) else next(results) for plan in planned]
        return [_answer(pin, answer) for pin, answer in zip(pinned, answers, strict=True)]

    async def recall(self, operation: WriteOperation, *, whole: bool = False) -> Outcome | None:
        pinned = self._pin(operation)
        assert not isinstance(pinned.present, Get)
        outcome = await self._plane.recall(pinned.present, whole=whole)
        return None if outcome is None else pinned.outcome(outcome)

    async def query(
        self, query: Query, preference: ReadPreference = ANY, ceiling: Ceiling | None = None
    ) -> QueryResult:
        self._schema.route_of(query.class_name)
        pinned = PinnedQuery(self._schema, query)
        return pinned.result(await self._plane.query(pinned.present, preference, ceiling))

    def transact(self, transact: _Transact) -> _Transact:
        """Return the execution of transactions whose writes have the names of the version."""

        async def run(transaction: CommitRequest) -> list[Outcome]:
            pinned = [self._pin(write) for write in transaction.writes]
            writes = tuple([await self._choose_write(pin) for pin in pinned])
            try:
                outcomes = await transact(replace(transaction, writes=writes))
            except MediatorError as error:
                raise _rename_fields(error, pinned) from None
            return [pin.outcome(o) for pin, o in zip(pinned, outcomes, strict=True)]

        return run

    async def _choose_write(self, pinned: PinnedOperation) -> WriteOperation:
        """Return a write of a transaction: a put over hidden fields replaces, or creates."""
        write = pinned.present
        assert not isinstance(write, Get)
        if isinstance(write, Create):
            return pinned.creation()
        if not pinned.keeps_hidden:
            self._check_complete(pinned)
            return write
        if write.condition.present is False or pinned.requires_condition:
            return pinned.creation()
        try:
            await self._plane.read(Get(write.database, write.class_name, write.id, ()), WHOLE)
        except NotFound:
            if write.condition != ANYTHING:
                return pinned.replacement()  # which fails, as there is no object
            return replace(pinned.creation(), condition=_ABSENT)
        return pinned.replacement()

    def _plan(self, pinned: PinnedOperation) -> Operation | MediatorError:
        try:
            self._check_complete(pinned)
            return pinned.creation() if isinstance(pinned.present, Create) else pinned.present
        except MediatorError as error:
            return error

    def _check_complete(self, pinned: PinnedOperation) -> None:
        """Check that a put of whole objects still has no hidden fields: an import may take minutes.

        Raises:
            Conflict: The schema of the class was changed since this request began.
        """
        put = pinned.operation
        database = self._plane.model.databases.get(put.database)
        route = None if database is None else database.classes.get(put.class_name)
        expected_version = self._schema.now.classes[put.class_name].schema_version
        if isinstance(put, Put) and route is not None and route.schema_version != expected_version:
            raise changed_meanwhile(put.class_name)

    def _pin(self, operation: Operation) -> PinnedOperation:
        self._schema.route_of(operation.class_name)
        return PinnedOperation(self._schema, operation)


def _answer(pinned: PinnedOperation, answer: Outcome | MediatorError) -> Outcome | MediatorError:
    if isinstance(answer, MediatorError):
        return pinned.error(answer)
    try:
        return pinned.outcome(answer)
    except MediatorError as error:
        return error


def _rename_fields(error: MediatorError, pinned: Sequence[PinnedOperation]) -> MediatorError:
    """Rename the fields in the error of a transaction; they are of one of the classes written."""
    for pin in {pin.operation.class_name: pin for pin in pinned}.values():
        locations = error.locations
        if pin.error(error).locations != locations:
            break
    return error
