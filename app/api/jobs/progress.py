"""Streams of server-sent events (HTML, section 9.2) that follow a run: one for every change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic
from typing import Final

import orjson

from app.api.jobs.documents import run_document
from app.api.jobs.rights import Permission
from app.http.message import Request
from mediator.base.errors import NotFound, Unavailable
from mediator.catalogue.runs import ENDED, CatalogueRuns, StoredRun

__all__ = ["RunStreams"]

_POLL_S: Final = 1.0
_HEARTBEAT_S: Final = 15.0
_MOST: Final = 200
"""Streams at the same time: each of them asks the catalogue once a second."""


class RunStreams:
    """Event streams of runs.

    Args:
        runs: The runs.
    """

    def __init__(self, runs: CatalogueRuns) -> None:
        self._runs = runs
        self._count = 0
        self._ended = False

    def end(self) -> None:
        """End all streams soon, so that the process can end."""
        self._ended = True

    def follow(
        self, run: StoredRun, request: Request, permission: Permission
    ) -> AsyncIterator[bytes]:
        """Return the events of a run, the present state first; they end with the run.

        Args:
            run: The run.
            request: The client: the events end when it disconnects.
            permission: Whether the run may still be shown; if not, the events end.

        Raises:
            Unavailable: There are too many streams.
        """
        if self._count >= _MOST:
            detail = "Too many clients follow runs."
            raise Unavailable(detail, system="catalogue", retry_after_s=10)
        return self._events(run, request, permission)

    async def _events(
        self, run: StoredRun, request: Request, permission: Permission
    ) -> AsyncIterator[bytes]:
        self._count += 1
        disconnected = asyncio.create_task(_disconnected(request))
        sent_at = monotonic()
        try:
            yield _event(run)
            while run.state not in ENDED and not self._ended:
                if (await asyncio.wait({disconnected}, timeout=_POLL_S))[0]:
                    return
                newer = await self._newer(run)
                if newer is None or not permission():
                    return
                if newer.version != run.version or monotonic() - sent_at >= _HEARTBEAT_S:
                    yield _event(newer)
                    sent_at = monotonic()
                run = newer
        finally:
            self._count -= 1
            disconnected.cancel()

    async def _newer(self, run: StoredRun) -> StoredRun | None:
        with suppress(Unavailable):  # the next poll may succeed
            try:
                return await self._runs.find(run.database_id, run.id)
            except NotFound:
                return None
        return run


def _event(run: StoredRun) -> bytes:
    data = orjson.dumps(run_document(run, whole=True))
    return b"id: %d\nevent: run\ndata: %b\n\n" % (run.version, data)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
