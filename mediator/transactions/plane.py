"""The interface of the plane of single operations to writes over several systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mediator.base.errors import AdvisoryOnly, NotFound
from mediator.model.operations import Outcome, WriteOperation
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.schema.foreign_keys import ForeignKey

__all__ = ["OperationPlane", "route_if_any"]


class OperationPlane(Protocol):
    """Routes and recorded outcomes of single operations."""

    @property
    def model(self) -> RoutingModel:
        """The routing model in force."""

    async def route(self, database: str, class_name: str) -> ClassRoute:
        """Return the route of a class."""

    async def newest_model(self) -> RoutingModel:
        """Look for a newer routing model."""

    async def find_referencing(
        self, database: str, key: ForeignKey, ids: Sequence[str], limit: int
    ) -> Sequence[str]:
        """Return the ids of up to `limit` objects that refer to any of some objects.

        It finds all acknowledged references. Raises `MediatorError`.
        """

    async def stored_outcome(self, route: ClassRoute, operation: WriteOperation) -> Outcome | None:
        """Return the answer that the stores recorded for an operation."""

    async def remove_copy(self, route: ClassRoute, id_: str, version: int) -> None:
        """Remove the view's copy of a deleted object."""


async def route_if_any(plane: OperationPlane, database: str, class_name: str) -> ClassRoute | None:
    """Return the route of a class; None: it is gone."""
    try:
        return await plane.route(database, class_name)
    except (NotFound, AdvisoryOnly):
        return None
