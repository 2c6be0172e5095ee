"""The probed paths: writes go through the mediator, reads over any path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias
from uuid import uuid4

from mediator.base.errors import NotFound, PreconditionFailed
from mediator.data_plane.port import DataPlane
from mediator.model.operations import Condition, Create, Delete, Get, Put
from mediator.routing.freshness import ANY, ReadPreference
from mediator.routing.model import ClassRoute
from mediator.schema.types import FieldType, Values

__all__ = ["PlanePath", "ProbePath", "Reader", "Versions"]

Versions: TypeAlias = Mapping[str, int | None]
"""Versions of cache groups."""

Reader: TypeAlias = Callable[[str], Awaitable[Versions | None]]
"""Reads an object by its id and returns its versions; None: missing."""


class ProbePath(Protocol):
    """A path for writes and reads; raises `MediatorError` and nothing else."""

    async def create(self, id_: str) -> Versions:
        """Create a scratch object; returns its versions when acknowledged."""

    async def write(self, id_: str) -> Versions:
        """Replace the object; returns its versions when acknowledged."""

    async def read(self, id_: str) -> Versions | None:
        """Read the object over the path; None if missing."""

    async def remove(self, id_: str) -> None:
        """Remove the object."""


PRESENT: Final = Condition(present=True)

_MINIMAL_VALUES: Final[Mapping[FieldType, Any]] = {
    FieldType.STRING: "",
    FieldType.INTEGER: 0,
    FieldType.FLOAT: 0,
    FieldType.DECIMAL: "0",
    FieldType.BOOLEAN: False,
    FieldType.TIMESTAMP: "2000-01-01T00:00:00Z",
    FieldType.BINARY: "",
    FieldType.DOCUMENT: {},
    FieldType.LIST: [],
    FieldType.SET: [],
    FieldType.MAP: {},
    FieldType.REFERENCE: "nothing",
}


class PlanePath:
    """A path through the mediator; a `reader` reads elsewhere instead, through a cache for one."""

    def __init__(
        self,
        plane: DataPlane,
        database: str,
        route: ClassRoute,
        preference: ReadPreference = ANY,
        reader: Reader | None = None,
    ) -> None:
        self._plane = plane
        self._class_address = (database, route.schema.name)
        self._values = _minimal_object(route)
        self._preference = preference
        self._reader = reader

    async def create(self, id_: str) -> Versions:
        create = Create(*self._class_address, id_, uuid4().hex, values=dict(self._values))
        return (await self._plane.write(create)).versions

    async def write(self, id_: str) -> Versions:
        put = Put(*self._class_address, id_, uuid4().hex, PRESENT, values=dict(self._values))
        return (await self._plane.write(put)).versions

    async def read(self, id_: str) -> Versions | None:
        if self._reader is not None:
            return await self._reader(id_)
        try:
            outcome = await self._plane.read(Get(*self._class_address, id_), self._preference)
        except NotFound:
            return None
        return outcome.versions

    async def remove(self, id_: str) -> None:
        with suppress(NotFound, PreconditionFailed):
            await self._plane.write(Delete(*self._class_address, id_, uuid4().hex, PRESENT))


def _minimal_object(route: ClassRoute) -> Values:
    """Return the minimal values of an object of a class."""
    fields = route.schema.fields.values()
    required = (field for field in fields if field.required and not field.has_default)
    return route.codec.decode_object(
        {field.name: _MINIMAL_VALUES[field.type] for field in required}
    )
