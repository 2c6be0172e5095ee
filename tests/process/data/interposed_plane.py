"""A data plane that runs an action before each batch."""

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
        errors = await self._before() or ()
        remaining = operations[: len(operations) - len(errors)]
        outcomes = await self._plane.batch(remaining, whole=whole) if remaining else []
        return [*outcomes, *errors]


def interposed(plane: DataPlane, before: _Before) -> DataPlane:
    """Return a plane that awaits `before` first; its errors replace the last outcomes."""
    return cast(DataPlane, _InterposedPlane(plane, before))
