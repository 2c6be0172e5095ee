"""The data plane of a process that has not seen the newest schema yet."""

from __future__ import annotations

from typing import Any

from mediator.base.errors import Unavailable
from mediator.data_plane.port import DataPlane
from mediator.routing.model import ClassRoute

__all__ = ["LatePlane"]


class LatePlane:
    """Sees another schema only when it looks for one, as for a class that it does not know."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self.model = plane.model
        self.answers = True
        """Whether the catalogue answers when it looks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def route(self, database: str, class_name: str) -> ClassRoute:
        known = self.model.databases.get(database)
        if known is None or class_name not in known.classes:
            if not self.answers:
                raise Unavailable("The catalogue does not answer.", system="catalogue")
            self.model = self._plane.model
        return await self._plane.route(database, class_name)
