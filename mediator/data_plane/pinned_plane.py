"""A data plane of requests that are pinned to a former version of their database's schema.

What comes in has the names of that version, and what goes out has them; the data plane below knows
the present ones only. A put must not remove what its version does not have. So it replaces the
fields that there are in the version, and creates an object only if there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from mediator.base.errors import AlreadyExists, MediatorError, NotFound, PreconditionFailed
from mediator.data_plane.pinned_operations import PinnedOperation
from mediator.data_plane.pinned_queries import PinnedQuery, changed_meanwhile
from mediator.data_plane.port import DataPlane, in_lanes
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
"""How often a put is tried: its object may be created, or deleted, just in between."""

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
        pinned = self._pinned(operation)
        assert isinstance(pinned.present, Get)
        return pinned.outcome(await self._plane.read(pinned.present, preference))

    async def write(self, operation: WriteOperation) -> Outcome:
        pinned = self._pinned(operation)
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
        """Put what has hidden fields; of several attempts under its operation id one takes effect.

        Raises:
            AlreadyExists: There is an object, and the request may not replace it; or others keep
                creating and deleting it.
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
        """Do many operations; where objects are put over hidden fields, one by one, in order."""
        pinned = [self._pinned(operation) for operation in operations]
        lanes: dict[tuple[str, str], dict[int, Operation]] = {}
        for each in pinned:
            if each.keeps_hidden:
                lanes[each.operation.class_name, each.operation.id] = {}
        together: dict[int, Operation] = {}
        for index, operation in enumerate(operations):
            lanes.get((operation.class_name, operation.id), together)[index] = operation
        batch = self._together([pinned[index] for index in together], whole=whole)
        answers = await in_lanes(self, lanes.values(), together, batch, whole=whole)
        return [answers[index] for index in range(len(operations))]

    async def _together(
        self, pinned: Sequence[PinnedOperation], *, whole: bool
    ) -> list[Outcome | MediatorError]:
        planned = [self._planned(each) for each in pinned]
        allowed = [each for each in planned if not isinstance(each, MediatorError)]
        done = iter(await self._plane.batch(allowed, whole=whole) if allowed else [])
        answers = [each if isinstance(each, MediatorError) else next(done) for each in planned]
        return [_answer(each, answer) for each, answer in zip(pinned, answers, strict=True)]

    async def recall(self, operation: WriteOperation, *, whole: bool = False) -> Outcome | None:
        pinned = self._pinned(operation)
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
            pinned = [self._pinned(write) for write in transaction.writes]
            writes = tuple([await self._chosen(each) for each in pinned])
            try:
                outcomes = await transact(replace(transaction, writes=writes))
            except MediatorError as error:
                raise _named(error, pinned) from None
            return [each.outcome(o) for each, o in zip(pinned, outcomes, strict=True)]

        return run

    async def _chosen(self, pinned: PinnedOperation) -> WriteOperation:
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
                return pinned.replacement()  # which finds out that there is none
            return replace(pinned.creation(), condition=_ABSENT)
        return pinned.replacement()

    def _planned(self, pinned: PinnedOperation) -> Operation | MediatorError:
        try:
            self._check_complete(pinned)
            return pinned.creation() if isinstance(pinned.present, Create) else pinned.present
        except MediatorError as error:
            return error

    def _check_complete(self, pinned: PinnedOperation) -> None:
        """Check that a put of whole objects has no hidden fields: an import may take minutes.

        Raises:
            Conflict: The schema of the class was changed since this request began.
        """
        put = pinned.operation
        database = self._plane.model.databases.get(put.database)
        route = None if database is None else database.classes.get(put.class_name)
        known = self._schema.now.classes[put.class_name].schema_version
        if isinstance(put, Put) and route is not None and route.schema_version != known:
            raise changed_meanwhile(put.class_name)

    def _pinned(self, operation: Operation) -> PinnedOperation:
        self._schema.route_of(operation.class_name)
        return PinnedOperation(self._schema, operation)


def _answer(pinned: PinnedOperation, answer: Outcome | MediatorError) -> Outcome | MediatorError:
    if isinstance(answer, MediatorError):
        return pinned.error(answer)
    try:
        return pinned.outcome(answer)
    except MediatorError as error:
        return error


def _named(error: MediatorError, pinned: Sequence[PinnedOperation]) -> MediatorError:
    """Return the error of a transaction; its location is a field of one of the classes written."""
    for each in {each.operation.class_name: each for each in pinned}.values():
        located = error.locations
        if each.error(error).locations != located:
            break
    return error
