"""A data plane of one subject: it has only the objects that belong to the subject.

A class with an `owner_field` holds objects of many subjects. All but its administrators
read and write through `OwnedPlane`: objects of other subjects are answered exactly like missing
ones.

A write first reads the owner, and is then bound to the version that it read::

    A reads: mine, at version 7          A reads: mine           A reads: not there
    A writes, if it is still 7           an administrator gives  B creates it
                                         it to B: version 9      A writes, if it is not there
                                         A's write is refused    A's write is refused

and is retried if it was refused. Versions only rise, so a version never belongs to an object that
was created under the same id later. If a field lies on another system than the owner's, the
versions are compared under the intents of the write (`docs/transactions.md`), so no other write
comes in between.

A creator learns that an id is taken: a creation, or a put that would have to create, is refused.
A deleter learns that some object refers to the deleted one, but not which
(`mediator.access.metered_plane`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from mediator.access.metered_plane import MayReadAll, NarrowedPlane, visible_error
from mediator.access.ownership import (
    ADMIN,
    Owner,
    bind_to_absence,
    binding_groups,
    hidden_error,
    is_mine,
    keep_owner,
    restrict,
    restrict_result,
    with_owner,
)
from mediator.base.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    MediatorError,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    StillReferenced,
)
from mediator.data_plane.port import DataPlane, run_lanes
from mediator.model.filters import And, Compare, Comparison
from mediator.model.operations import (
    NEVER,
    Condition,
    Create,
    Get,
    Operation,
    Outcome,
    Put,
    WriteOperation,
)
from mediator.model.query import CountMode, Query
from mediator.operations.merge import check_if_match, if_match_error, narrow_to_creation
from mediator.operations.read_modify_write import ATTEMPTS, alternative
from mediator.query.budget import Ceiling
from mediator.query.execution import QueryResult
from mediator.routing.freshness import ANY, STRONG, ReadPreference
from mediator.routing.model import ClassRoute

__all__ = ["OwnedPlane", "OwnerOf"]

OwnerOf: TypeAlias = Callable[[str, str], str | None]
"""Returns, for a database and a class, the subject whose objects are visible; None: all."""

_REFUSALS: Final = (AlreadyExists, NotFound, PreconditionFailed, PreconditionRequired)
"""Refusals for the state of the object, which an earlier attempt of the write may have caused."""


class OwnedPlane(NarrowedPlane):
    """Implements `mediator.data_plane.port.DataPlane` for one subject."""

    def __init__(
        self,
        plane: DataPlane,
        owner_of: OwnerOf,
        may_read_all: MayReadAll = lambda _database, _class: False,
    ) -> None:
        super().__init__(plane)
        self._owner_of = owner_of
        self._may_read_all = may_read_all

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        """Raises `NotFound` also for another subject's object."""
        route, owner = await self._owner(operation.database, operation.class_name)
        if owner is None:
            return await self._plane.read(operation, preference)
        outcome = await self._plane.read(with_owner(operation, owner), preference)
        return restrict(route, operation, owner, outcome)

    async def write(self, operation: WriteOperation) -> Outcome:
        route, owner = await self._owner(operation.database, operation.class_name)
        try:
            if owner is None:
                return await self._plane.write(operation)
            return await self._write(route, owner, operation)
        except StillReferenced as error:
            raise visible_error(error, operation.database, self._may_read_all) from None

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        """Do many operations; those on owned classes object by object, each in its order."""
        answers: dict[int, Outcome | MediatorError] = {}
        together: dict[int, Operation] = {}
        restricted: dict[int, tuple[ClassRoute, Get, Owner]] = {}
        owners: dict[str, tuple[ClassRoute, Owner]] = {}
        lanes: dict[tuple[str, str], dict[int, Operation]] = {}
        for index, operation in enumerate(operations):
            try:
                route, owner = await self._owner(operation.database, operation.class_name)
            except MediatorError as error:
                answers[index] = error
                continue
            if owner is None:
                together[index] = operation
            else:
                owners[operation.class_name] = route, owner
                lanes.setdefault((operation.class_name, operation.id), {})[index] = operation
        for key, lane in list(lanes.items()):
            gets = {i: get for i, get in lane.items() if isinstance(get, Get)}
            if len(gets) == len(lane):  # reads alone take few round trips
                del lanes[key]
                route, owner = owners[key[0]]
                together |= {i: with_owner(get, owner) for i, get in gets.items()}
                restricted |= {i: (route, get, owner) for i, get in gets.items()}
        batch = self._plane.batch(list(together.values()), whole=whole)
        answers |= await run_lanes(self, lanes.values(), together, batch, whole=whole)
        for index, request in restricted.items():
            answers[index] = restrict_result(*request, answers[index])
        for index, answer in answers.items():
            if isinstance(answer, StillReferenced):
                database = operations[index].database
                answers[index] = visible_error(answer, database, self._may_read_all)
        return [answers[index] for index in range(len(operations))]

    async def query(
        self, query: Query, preference: ReadPreference = ANY, ceiling: Ceiling | None = None
    ) -> QueryResult:
        """Raises `Forbidden` if it joins a class that has owners."""
        for class_name in sorted(query.joined_classes):
            _, owner = await self._owner(query.database, class_name)
            if owner is not None:
                detail = f"Objects of {class_name} have owners, and are not joined."
                raise Forbidden(detail, extra=ADMIN)
        _, owner = await self._owner(query.database, query.class_name)
        if owner is not None:
            mine = Compare(Comparison.EQ, (owner.field,), owner.subject)
            filter_ = mine if query.filter is None else And((mine, query.filter))
            # An estimate uses statistics of all objects, and so would disclose those of others.
            query = replace(query, filter=filter_, count=query.count and CountMode.EXACT)
        return await self._plane.query(query, preference, ceiling)

    async def _owner(self, database: str, class_name: str) -> tuple[ClassRoute, Owner | None]:
        route = await self._plane.route(database, class_name)
        field = route.schema.owner_field
        subject = None if field is None else self._owner_of(database, class_name)
        return route, Owner(field, subject) if field and subject is not None else None

    async def _write(self, route: ClassRoute, owner: Owner, operation: WriteOperation) -> Outcome:
        operation = keep_owner(owner, operation)
        if isinstance(operation, Create):
            return await self._plane.write(operation)
        check_if_match(route, operation)
        for _ in range(ATTEMPTS):
            try:
                bound = await self._bind(route, owner, operation)
            except _REFUSALS as error:
                return await self._first_answer(operation, error)
            try:
                return await self._plane.write(bound)
            except PreconditionFailed:
                # Another writer was faster, and may have changed the owner: reread it.
                continue
        raise Conflict("Other writes keep changing the object; try again.")

    async def _first_answer(self, operation: WriteOperation, error: MediatorError) -> Outcome:
        """Return the answer to the operation that this one repeats; raises `error` if none."""
        if operation.fingerprint is not None:
            # Not recalled: a write over several systems knows its answer only under its intents.
            with suppress(NotFound, PreconditionFailed):
                return await self._plane.write(replace(operation, condition=NEVER))
        raise error

    async def _bind(
        self, route: ClassRoute, owner: Owner, operation: WriteOperation
    ) -> WriteOperation:
        """Bind a write to the current version; raises as the data plane would."""
        condition = operation.condition
        get = Get(operation.database, operation.class_name, operation.id)
        try:
            current = await self._plane.read(get, STRONG)
        except NotFound:
            return bind_to_absence(operation)
        if not is_mine(owner, current):
            raise hidden_error(operation)
        name = f"{operation.class_name}/{operation.id}"
        if condition.present is False:
            raise PreconditionFailed(f"{name} exists.")
        if isinstance(operation, Put) and narrow_to_creation(route, operation) is not operation:
            raise if_match_error(operation)
        matched = alternative(condition, current.versions)
        if matched is None:
            raise PreconditionFailed(f"{name} was changed meanwhile.")
        bound_versions = {
            group: current.versions.get(group) for group in binding_groups(route, operation)
        }
        return replace(operation, condition=Condition(versions=({**matched, **bound_versions},)))
