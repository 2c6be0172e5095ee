"""A run as JSON, and as server-sent events (HTML, section 9.2): one for every change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from app.api.following import Followed, Followers, Item, Page
from app.api.jobs.rights import Permission
from app.http.message import Request
from mediator.base.errors import Forbidden, Unavailable
from mediator.catalogue.runs import ENDED, CatalogueRuns, StoredRun

__all__ = ["RunStreams", "run_document"]

_PROGRESS: Final = ("stages", "counters", "elapsed_s", "eta_s", "log")
_OUTCOME: Final = ("forecast", "reasons", "rows", "reports")


@dataclass(eq=False)
class RunStreams:
    _runs: CatalogueRuns
    _followers: Followers = field(
        default_factory=lambda: Followers("runs", "catalogue"), init=False
    )
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
        state = run.state

        async def read(version: int, _limit: int, wait_s: float) -> Page[int]:
            nonlocal state
            await asyncio.sleep(wait_s)
            try:
                newer = await self._runs.find(run.database_id, run.id)
            except Unavailable:  # the next poll may succeed
                return Page([], version)
            state = newer.state
            return Page([_item(newer)] if newer.version != version else [], newer.version)

        async def check() -> bytes:
            if not permission():
                raise Forbidden("The run may not be shown any more.")
            return b""

        def goes_on() -> bool:
            return state not in ENDED and not self._ended

        followed = Followed("run", ("runs", "version"), read, check, goes_on)
        return self._followers.follow(request, followed, Page([_item(run)], run.version))


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


def _item(run: StoredRun) -> Item:
    return Item(str(run.version), orjson.dumps(run_document(run, whole=True)))
