"""The data plane of a process that has not yet loaded the latest schema."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from mediator.base.concurrency import end
from mediator.base.errors import Unavailable
from mediator.base.lease import Leasing
from mediator.data_plane.port import DataPlane
from mediator.routing.model import ClassRoute
from tests.faults.conditions import eventually

__all__ = ["LatePlane", "holding"]


class LatePlane:
    """Loads a new schema only when it needs one, as for an unknown class."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self.model = plane.model
        self.answers = True
        """Whether the catalogue answers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def route(self, database: str, class_name: str) -> ClassRoute:
        known_database = self.model.databases.get(database)
        if known_database is None or class_name not in known_database.classes:
            if not self.answers:
                raise Unavailable("The catalogue does not answer.", system="catalogue")
            self.model = self._plane.model
        return await self._plane.route(database, class_name)


@asynccontextmanager
async def holding(
    leases: Leasing, name: str, run: Coroutine[Any, Any, None]
) -> AsyncIterator[None]:
    """Run a lease holder; enter the block once it holds the lease `name`."""

    async def is_held() -> bool:
        if await leases.acquire(name, "probe", 1.0):
            await leases.release(name, "probe")
            return False
        return True

    holder = asyncio.create_task(run)
    try:
        await eventually(is_held)
        yield
    finally:
        await end([holder])
