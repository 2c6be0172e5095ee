"""What the mediator offers to applications: operations on objects, and queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mediator.base.errors import MediatorError
from mediator.model.operations import Get, Operation, Outcome, WriteOperation
from mediator.model.query import Query
from mediator.query.budget import Ceiling
from mediator.query.execution import Answer
from mediator.routing.freshness import ANY, ReadPreference
from mediator.routing.model import ClassRoute, RoutingModel

__all__ = ["DataPlane"]


class DataPlane(Protocol):
    """Operations on objects. Every method raises `MediatorError` and nothing else."""

    @property
    def model(self) -> RoutingModel:
        """The routing model in force."""

    async def route(self, database: str, class_name: str) -> ClassRoute:
        """Find a class, looking for a newer routing model before saying `NotFound`.

        Raises:
            NotFound: There is no such database or class.
            AdvisoryOnly: The database holds no data.
        """

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        """Read one object; `NotFound` if it is not there."""

    async def write(self, operation: WriteOperation) -> Outcome:
        """Write one object; returns when the write is acknowledged."""

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        """Do many operations with few round trips; operations on one object keep their order.

        Args:
            operations: The operations.
            whole: Reads wait for writes over several systems to be resolved.
        """

    async def recall(self, operation: WriteOperation) -> Outcome | None:
        """Return the answer remembered for an operation id; `IdempotencyReused` if it differs.

        None does not say that it has not happened: `write` answers it again if it has.
        """

    async def query(
        self, query: Query, preference: ReadPreference = ANY, ceiling: Ceiling | None = None
    ) -> Answer:
        """Answer a query; the answer does not depend on where the data is placed.

        Raises:
            NeedsScan: A store could only send all of its records, and that is not allowed.
            TooCostly: It goes beyond the limits of rows or time.
            Invalid: An aggregate cannot be computed.
        """
