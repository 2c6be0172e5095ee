"""Numbers of objects in classes, as their systems estimate; cached for a while."""

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

__all__ = ["MAX_CLASSES", "Sizes"]

MAX_CLASSES: Final = 100
"""Maximum classes of a page whose objects are counted; each takes a query."""

_TTL_S: Final = 30.0
_MAX_ESTIMATES: Final = 10_000
"""Maximum cached estimates, over all classes and readers."""

_CONCURRENCY: Final = 4
_TIMEOUT_S: Final = 1.0
"""Maximum wait of a page for systems that are away."""


class Sizes:
    """Estimates of classes, cached for half a minute, as pages are shown often.

    They are cached for each reader: in a class with owners, the total is of the reader's own
    objects.
    """

    def __init__(self) -> None:
        self._cache: dict[tuple[Principal | None, str], tuple[float, int | None]] = {}

    async def of(self, request: Request, classes: Sequence[str]) -> dict[str, int | None]:
        """Return the sizes of the first classes, given as ``database.class``; None: unknown."""
        now, reader, names = monotonic(), sender(request), classes[:MAX_CLASSES]
        self._cache = {key: entry for key, entry in self._cache.items() if entry[0] > now}
        # A copy: another page may be shown during the await.
        cache = self._cache
        sizes = {name: cache[reader, name][1] for name in names if (reader, name) in cache}
        missing = [name for name in names if name not in sizes]
        sizes |= await _estimates(request, missing)
        self._cache |= {(reader, name): (now + _TTL_S, sizes[name]) for name in missing}
        # The oldest estimates come first.
        self._cache = dict(list(self._cache.items())[-_MAX_ESTIMATES:])
        return {name: sizes[name] for name in names}


async def _estimates(request: Request, names: Sequence[str]) -> dict[str, int | None]:
    limit = asyncio.Semaphore(_CONCURRENCY)
    tasks = {name: asyncio.create_task(_estimate(request, name, limit)) for name in names}
    if tasks:
        _, pending = await asyncio.wait(tasks.values(), timeout=_TIMEOUT_S)
        await end(pending)
    return {name: None if task.cancelled() else task.result() for name, task in tasks.items()}


async def _estimate(request: Request, name: str, limit: asyncio.Semaphore) -> int | None:
    # The total of a class that fits a page is exact: planners know little of small tables.
    parameters = {"count": "estimated", "limit": "100", "fields": "id"}
    async with limit:
        try:
            document = await send(request, "GET", name.replace(".", "/", 1), parameters)
        except (DataApiRefused, MediatorError):
            return None
    total: int = document["total"]
    return total
