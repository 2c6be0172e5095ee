"""A data plane of one subject: it has only the objects that belong to the subject.

A class with an `owner_field` holds objects of many subjects. All but its administrators
read and write through `OwnedPlane`: objects of others are answered exactly like missing ones.

A write first reads the owner, and is then bound to the version that it read::

    A reads: mine, at version 7          A reads: mine           A reads: not there
    A writes, if it is still 7           an administrator gives  B creates it
                                         it to B: version 9      A writes, if it is not there
                                         A's write is refused    A's write is refused

and is repeated if it was refused. Versions only rise, so a version never belongs to an object that
was created under the same id later. Where a field lies on another system than the
owner's, the versions are compared under the intents of the write (`docs/transactions.md`): nothing
comes between that and the write.

That an id is taken cannot be hidden from a creator: a creation, or a put that would have
to create, is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from mediator.access.metered_plane import NarrowedPlane
from mediator.access.ownership import (
    ADMIN,
    Owner,
    binding_groups,
    checked,
    creating,
    is_mine,
    kept,
    shown,
    taken,
    with_owner,
)
from mediator.base.errors import Conflict, Forbidden, MediatorError, NotFound, PreconditionFailed
from mediator.data_plane.port import DataPlane
from mediator.model.filters import And, Compare, Comparison
from mediator.model.operations import (
    Condition,
    Create,
    Get,
    Operation,
    Outcome,
    Put,
    WriteOperation,
)
from mediator.model.query import Query
from mediator.operations.merge import check_if_match, if_match_error, narrow_to_creation
from mediator.operations.read_modify_write import ATTEMPTS, alternative
from mediator.query.budget import Ceiling
from mediator.query.execution import Answer
from mediator.routing.freshness import ANY, STRONG, WHOLE, ReadPreference
from mediator.routing.model import ClassRoute

__all__ = ["OwnedPlane", "OwnerOf"]

OwnerOf: TypeAlias = Callable[[str, str], str | None]
"""Returns, for a database and a class, the subject whose objects are visible; None: all."""

_CONCURRENCY: Final = 16


class OwnedPlane(NarrowedPlane):
    """Implements `mediator.data_plane.port.DataPlane` for one subject."""

    def __init__(self, plane: DataPlane, owner_of: OwnerOf) -> None:
        super().__init__(plane)
        self._owner_of = owner_of

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        """Read one object; `NotFound` if it is not there, or somebody else's."""
        route, owner = await self._owner(operation.database, operation.class_name)
        if owner is None:
            return await self._plane.read(operation, preference)
        outcome = await self._plane.read(with_owner(operation, owner), preference)
        return shown(route, operation, owner, outcome)

    async def write(self, operation: WriteOperation) -> Outcome:
        """Write one object; see `DataPlane.write`."""
        route, owner = await self._owner(operation.database, operation.class_name)
        if owner is None:
            return await self._plane.write(operation)
        return await self._write(route, owner, operation)

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        """Do many operations; those on owned classes object by object, each in its order."""
        answers: dict[int, Outcome | MediatorError] = {}
        free: list[int] = []
        lanes: dict[tuple[str, str], list[int]] = {}
        for index, operation in enumerate(operations):
            try:
                _, owner = await self._owner(operation.database, operation.class_name)
            except MediatorError as error:
                answers[index] = error
                continue
            if owner is None:
                free.append(index)
            else:
                lanes.setdefault((operation.class_name, operation.id), []).append(index)
        for part in await self._all(operations, free, lanes, whole=whole):
            answers.update(part)
        return [answers[index] for index in range(len(operations))]

    async def query(
        self, query: Query, preference: ReadPreference = ANY, ceiling: Ceiling | None = None
    ) -> Answer:
        """Answer a query of what is there; `Forbidden` if it joins a class that has owners."""
        for join in query.joins:
            _, owner = await self._owner(query.database, join.class_name)
            if owner is not None:
                detail = f"Objects of {join.class_name} have owners, and are not joined."
                raise Forbidden(detail, extra=ADMIN)
        _, owner = await self._owner(query.database, query.class_name)
        if owner is not None:
            mine = Compare(Comparison.EQ, (owner.field,), owner.subject)
            filter_ = mine if query.filter is None else And((mine, query.filter))
            query = replace(query, filter=filter_)
        return await self._plane.query(query, preference, ceiling)

    async def _owner(self, database: str, class_name: str) -> tuple[ClassRoute, Owner | None]:
        route = await self._plane.route(database, class_name)
        field = route.schema.owner_field
        subject = None if field is None else self._owner_of(database, class_name)
        return route, Owner(field, subject) if field and subject is not None else None

    async def _all(
        self,
        operations: Sequence[Operation],
        free: Sequence[int],
        lanes: dict[tuple[str, str], list[int]],
        *,
        whole: bool,
    ) -> Sequence[Mapping[int, Outcome | MediatorError]]:
        reads: list[int] = []
        for key, indices in list(lanes.items()):
            if all(isinstance(operations[index], Get) for index in indices):
                reads += lanes.pop(key)
        slots, preference = asyncio.Semaphore(_CONCURRENCY), WHOLE if whole else ANY
        return await asyncio.gather(
            self._together(operations, free, whole=whole),
            self._read_each(operations, reads, whole=whole),
            *(self._in_turn(operations, own, slots, preference) for own in lanes.values()),
        )

    async def _together(
        self, operations: Sequence[Operation], indices: Sequence[int], *, whole: bool
    ) -> Mapping[int, Outcome | MediatorError]:
        if not indices:
            return {}
        found = await self._plane.batch([operations[i] for i in indices], whole=whole)
        return dict(zip(indices, found, strict=True))

    async def _read_each(
        self, operations: Sequence[Operation], indices: Sequence[int], *, whole: bool
    ) -> Mapping[int, Outcome | MediatorError]:
        """Read many objects with few round trips."""
        reads: list[Get] = []
        requests: list[tuple[ClassRoute, Get, Owner]] = []
        for index in indices:
            get = operations[index]
            assert isinstance(get, Get)
            route, owner = await self._owner(get.database, get.class_name)
            assert owner is not None
            reads.append(with_owner(get, owner))
            requests.append((route, get, owner))
        outcomes = await self._plane.batch(reads, whole=whole) if reads else []
        return {
            index: checked(*request, outcome)
            for index, request, outcome in zip(indices, requests, outcomes, strict=True)
        }

    async def _in_turn(
        self,
        operations: Sequence[Operation],
        indices: Sequence[int],
        slots: asyncio.Semaphore,
        preference: ReadPreference,
    ) -> Mapping[int, Outcome | MediatorError]:
        answers: dict[int, Outcome | MediatorError] = {}
        async with slots:
            for index in indices:
                operation = operations[index]
                try:
                    answers[index] = await (
                        self.read(operation, preference)
                        if isinstance(operation, Get)
                        else self.write(operation)
                    )
                except MediatorError as error:
                    answers[index] = error
        return answers

    async def _write(self, route: ClassRoute, owner: Owner, operation: WriteOperation) -> Outcome:
        operation = kept(owner, operation)
        if isinstance(operation, Create):
            return await self._plane.write(operation)
        check_if_match(route, operation)
        for _ in range(ATTEMPTS):
            bound = await self._bound(route, owner, operation)
            try:
                return await self._plane.write(bound)
            except PreconditionFailed:
                # Another writer was faster, and may have changed the owner: read it again.
                continue
        raise Conflict("The object is being changed by others all the time; try again.")

    async def _bound(
        self, route: ClassRoute, owner: Owner, operation: WriteOperation
    ) -> WriteOperation:
        """Bind a write to the present version, or raise what the data plane would."""
        wanted = operation.condition
        whole = Get(operation.database, operation.class_name, operation.id)
        try:
            current = await self._plane.read(whole, STRONG)
        except NotFound:
            return creating(operation)
        if not is_mine(owner, current):
            raise taken(operation)
        name = f"{operation.class_name}/{operation.id}"
        if wanted.present is False:
            raise PreconditionFailed(f"{name} exists.")
        if isinstance(operation, Put) and narrow_to_creation(route, operation) is not operation:
            raise if_match_error(operation)
        matched = alternative(wanted, current)
        if matched is None:
            raise PreconditionFailed(f"{name} was changed meanwhile.")
        seen = {group: current.versions.get(group) for group in binding_groups(route, operation)}
        return replace(operation, condition=Condition(versions=({**matched, **seen},)))
