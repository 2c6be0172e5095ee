"""The port that lets in requests which no client sends, such as those of message flows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from mediator.data_plane.port import DataPlane

__all__ = ["Admitted", "at_once"]

Admitted: TypeAlias = Callable[[DataPlane, str], AbstractAsyncContextManager[DataPlane]]
"""Lets a request for a database in, when its time has come; yields the plane that it is for."""


@asynccontextmanager
async def at_once(plane: DataPlane, _: str) -> AsyncIterator[DataPlane]:
    """Bound nothing: requests are not authenticated, so they belong to no tenant."""
    yield plane
