"""A data plane on which something happens before each batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

from mediator.base.errors import MediatorError
from mediator.data_plane.port import DataPlane
from mediator.model.operations import Operation, Outcome

__all__ = ["interposed"]

_Before: TypeAlias = Callable[[], Awaitable[Sequence[MediatorError] | None]]


class _InterposedPlane:
    def __init__(self, plane: DataPlane, before: _Before) -> None:
        self._plane, self._before = plane, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        refused = await self._before() or ()
        executed = operations[: len(operations) - len(refused)]
        done = await self._plane.batch(executed, whole=whole) if executed else []
        return [*done, *refused]


def interposed(plane: DataPlane, before: _Before) -> DataPlane:
    """Return the plane, on which `before` is awaited first; what it returns befalls the rest."""
    return cast(DataPlane, _InterposedPlane(plane, before))
