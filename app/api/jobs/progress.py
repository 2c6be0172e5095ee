"""A run as JSON, and as server-sent events (HTML, section 9.2): one for every change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import orjson

from app.api.jobs.rights import Permission
from app.http.message import Request
from mediator.base.errors import NotFound, Unavailable
from mediator.catalogue.runs import ENDED, CatalogueRuns, StoredRun

__all__ = ["RunStreams", "run_document"]

_PROGRESS: Final = ("stages", "counters", "elapsed_s", "eta_s", "log")
_OUTCOME: Final = ("forecast", "reasons", "rows", "reports")
_POLL_S: Final = 1.0
_HEARTBEAT_S: Final = 15.0
_MOST: Final = 200
"""Streams at the same time: each of them reads the catalogue once a second."""


@dataclass(eq=False)
class RunStreams:
    _runs: CatalogueRuns
    _count: int = field(default=0, init=False)
    _ended: bool = field(default=False, init=False)

    def end(self) -> None:
        """End all streams soon, so that the process can end."""
        self._ended = True

    def follow(
        self, run: StoredRun, request: Request, permission: Permission
    ) -> AsyncIterator[bytes]:
        """Return the events of a run, the present state first.

        They end with the run, when the client disconnects, and when the run may no longer be shown.

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
        # Counted here, not in `follow`: a generator that never starts would not reach its
        # `finally`.
        self._count += 1
        sent_at = monotonic()
        try:
            yield _event(run)
            while run.state not in ENDED and not self._ended:
                await asyncio.sleep(_POLL_S)
                if request.is_disconnected:
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

    async def _newer(self, run: StoredRun) -> StoredRun | None:
        try:
            return await self._runs.find(run.database_id, run.id)
        except NotFound:
            return None
        except Unavailable:  # the next poll may succeed
            return run


def run_document(run: StoredRun, *, whole: bool) -> dict[str, Any]:
    """Return a run; in a listing without its job, its log and its reports."""
    job = run.document["job"]
    document: dict[str, Any] = {
        "id": run.id,
        "kind": job["kind"],
        "state": run.state,
        "dry_run": run.dry_run,
        "attempt": run.attempt,
        "cancelling": run.cancelling and run.ended is None,
        "held": run.held and run.ended is None,
        "created": run.created.isoformat(),
        "ended": run.ended and run.ended.isoformat(),
    }
    if not whole:
        return document
    for names, known in ((_PROGRESS, run.progress), (_OUTCOME, run.outcome)):
        document |= {name: known[name] for name in names if name in known}
    return {**document, "job": job}


def _event(run: StoredRun) -> bytes:
    data = orjson.dumps(run_document(run, whole=True))
    return b"id: %d\nevent: run\ndata: %b\n\n" % (run.version, data)
