"""The interface of the mediator to applications: operations on objects, and queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol, TypeAlias

from mediator.base.concurrency import result_or_error, results_or_raise
from mediator.base.errors import AdvisoryOnly, MediatorError, NotFound
from mediator.model.operations import Get, Operation, Outcome, WriteOperation
from mediator.model.query import Position, Query
from mediator.query.budget import Ceiling
from mediator.query.execution import QueryResult
from mediator.routing.freshness import ANY, STRONG, WHOLE, ReadPreference
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel

__all__ = [
    "Admitted",
    "DataPlane",
    "at_once",
    "is_outdated",
    "pages",
    "present_objects",
    "run_lanes",
]

PAGE: Final = 500
"""Objects read at once."""

_CONCURRENCY: Final = 16
"""How many lanes of one batch run at a time."""


class DataPlane(Protocol):
    """Operations on objects. Every method raises `MediatorError` and nothing else."""

    @property
    def model(self) -> RoutingModel:
        """The routing model in force."""

    async def route(self, database: str, class_name: str) -> ClassRoute:
        """Look for a newer routing model before the class is reported missing.

        Raises:
            NotFound: There is no such database or class.
            AdvisoryOnly: The database holds no data.
        """

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        """Raises `NotFound` if the object does not exist."""

    async def write(self, operation: WriteOperation) -> Outcome:
        """Returns when the write is acknowledged."""

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        """Do many operations with few round trips; operations on one object keep their order.

        With `whole`, reads wait for writes over several systems to be resolved.
        """

    async def recall(self, operation: WriteOperation, *, whole: bool = False) -> Outcome | None:
        """Return the answer remembered for an operation id.

        None does not mean that it did not happen: `write` finds the answer if it did.

        Args:
            operation: May have been done under its id in this or another form: an upsert creates an
                object that it could not patch.
            whole: Whether a write over several systems that is under way is resolved first. Else
                the answer may be that of a part of a write in another form.

        Raises:
            IdempotencyReused: The operation id was used with another fingerprint.
            Locked: With `whole`, other writers held the object all the time.
            Unavailable: A system does not answer.
        """

    async def query(
        self, query: Query, preference: ReadPreference = ANY, ceiling: Ceiling | None = None
    ) -> QueryResult:
        """Answer a query; the answer does not depend on where the data is placed.

        Raises:
            NeedsScan: A store could only send all of its records, and that is not allowed.
            TooCostly: It goes beyond the limits of rows or time.
            Invalid: An aggregate cannot be computed.
        """


async def is_outdated(plane: DataPlane, route: DatabaseRoute) -> bool:
    """Whether a database has another schema by now; the call puts it in force.

    A process learns of a schema a moment after others, which may have recorded something that
    needs it. So a schema for which this is true must not stop or refuse anything for good. Records
    made before the call are of the schema then in force, or of an earlier one.

    Raises:
        Unavailable: The catalogue does not answer.
    """
    with suppress(NotFound, AdvisoryOnly):
        await plane.route(route.schema.database, "")  # no class has this name, so it refreshes
    return plane.model.by_id.get(route.id) is not route


Admitted: TypeAlias = Callable[[DataPlane, str], AbstractAsyncContextManager[DataPlane]]
"""Admits an internal request, such as one of a message flow, when its turn comes; takes the
request's database, and yields the plane for it."""


@asynccontextmanager
async def at_once(plane: DataPlane, _: str) -> AsyncIterator[DataPlane]:
    """Admit without bounds: requests are not authenticated, so they belong to no tenant."""
    yield plane


async def run_lanes(
    plane: DataPlane,
    lanes: Collection[Mapping[int, Operation]],
    batched: Collection[int],
    batch: Awaitable[Sequence[Outcome | MediatorError]],
    *,
    whole: bool,
) -> dict[int, Outcome | MediatorError]:
    """Run lanes of operations, each in its order, while one batch runs the remaining operations.

    Args:
        plane: Runs the operations of the lanes, one by one.
        lanes: Operations on one object each, by number.
        batched: The numbers of the remaining operations, in the order of the batch's answers.
        batch: Runs the remaining operations.
        whole: As of `DataPlane.batch`.

    Returns:
        The answers by number.
    """
    slots, preference = asyncio.Semaphore(_CONCURRENCY), WHOLE if whole else ANY
    work = [_in_turn(plane, [*lane.values()], slots, preference) for lane in lanes]
    answers: dict[int, Outcome | MediatorError] = {}
    batch_results = await asyncio.gather(batch, *work)
    for numbers, results in zip([batched, *lanes], batch_results, strict=True):
        answers.update(zip(numbers, results, strict=True))
    return answers


async def _in_turn(
    plane: DataPlane,
    operations: Sequence[Operation],
    slots: asyncio.Semaphore,
    preference: ReadPreference,
) -> list[Outcome | MediatorError]:
    """Do operations one after the other, once a slot is free; each gets its own answer."""
    async with slots:
        return [
            await result_or_error(plane.read, operation, preference)
            if isinstance(operation, Get)
            else await result_or_error(plane.write, operation)
            for operation in operations
        ]


async def pages(
    plane: DataPlane,
    database: str,
    class_name: str,
    after: str | None = None,
    fields: tuple[str, ...] | None = None,
) -> AsyncIterator[list[Outcome]]:
    """Yield the objects of a class after an id, in the order of ids, as the systems hold them.

    Raises:
        Unavailable: A system does not answer.
    """
    while True:
        beyond = None if after is None else Position((), after)
        query = Query(
            database, class_name, limit=PAGE, after=beyond, fields=fields, may_end_early=True
        )
        answer = await plane.query(query, STRONG)
        if answer.items:
            yield [item.outcome for item in answer.items]
        if answer.next is None:
            return
        after = answer.next.id


async def present_objects(
    plane: DataPlane,
    database: str,
    class_name: str,
    ids: Sequence[str],
    fields: tuple[str, ...] | None = None,
    *,
    whole: bool = False,
) -> dict[str, Outcome]:
    """Return the objects of a class that exist among some ids, by id; `whole` as of `batch`.

    Raises:
        MediatorError: A system does not answer, or the class is gone.
    """
    objects: dict[str, Outcome] = {}
    for start in range(0, len(ids), PAGE):
        reads = [Get(database, class_name, id_, fields) for id_ in ids[start : start + PAGE]]
        answers = await plane.batch(reads, whole=whole)
        outcomes = results_or_raise(a for a in answers if not isinstance(a, NotFound))
        objects |= {outcome.id: outcome for outcome in outcomes}
    return objects
