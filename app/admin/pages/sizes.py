"""How many objects classes have, as their systems estimate; counted again after a while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

from fastapi import Request

from app.admin.pages.data_client import DataApiRefused, send
from app.security.admin_port import sender
from mediator.access.model import Principal
from mediator.base.concurrency import end
from mediator.base.errors import MediatorError

__all__ = ["MOST", "Sizes"]

MOST: Final = 100
"""Classes of a page whose objects are counted; each takes a query."""

_KEPT_S: Final = 30.0
_MOST_KEPT: Final = 10_000
"""Estimates that are kept: of so many classes for so many readers together."""

_AT_ONCE: Final = 4
_WITHIN_S: Final = 1.0
"""A page does not wait longer for systems that are away."""


class Sizes:
    """The estimates of classes, which are kept for half a minute: pages are shown often.

    They are kept for each reader: of a class with owners, the total is that of the reader's own
    objects.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[Principal | None, str], tuple[float, int | None]] = {}

    async def of(self, request: Request, classes: Sequence[str]) -> dict[str, int | None]:
        """Return the sizes of the first classes, given as ``database.class``; None: not known."""
        now, reader, wanted = monotonic(), sender(request), classes[:MOST]
        self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > now}
        # A copy: another page may be shown during the await.
        kept = self._kept
        sizes = {name: kept[reader, name][1] for name in wanted if (reader, name) in kept}
        due = [name for name in wanted if name not in sizes]
        sizes |= await _estimates(request, due)
        self._kept |= {(reader, name): (now + _KEPT_S, sizes[name]) for name in due}
        # The oldest ones come first.
        self._kept = dict(list(self._kept.items())[-_MOST_KEPT:])
        return {name: sizes[name] for name in wanted}


async def _estimates(request: Request, names: Sequence[str]) -> dict[str, int | None]:
    limit = asyncio.Semaphore(_AT_ONCE)
    tasks = {name: asyncio.create_task(_estimate(request, name, limit)) for name in names}
    if tasks:
        _, late = await asyncio.wait(tasks.values(), timeout=_WITHIN_S)
        await end(late)
    return {name: None if task.cancelled() else task.result() for name, task in tasks.items()}


async def _estimate(request: Request, name: str, limit: asyncio.Semaphore) -> int | None:
    # Of a class that fits a page the total is exact: planners know little of small tables.
    parameters = {"count": "estimated", "limit": "100", "fields": "id"}
    async with limit:
        try:
            document = await send(request, "GET", name.replace(".", "/", 1), parameters)
        except (DataApiRefused, MediatorError):
            return None
    total: int = document["total"]
    return total
