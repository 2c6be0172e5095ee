"""A run as JSON, and its changes as server-sent events (HTML, section 9.2)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from app.api.following import EventFeed, Item, Page
from app.api.jobs.rights import Permission
from mediator.base.errors import Forbidden, Unavailable
from mediator.catalogue.runs import ENDED, CatalogueRuns, StoredRun

__all__ = ["run_document", "run_feed"]

_PROGRESS: Final = ("stages", "counters", "elapsed_s", "eta_s", "log")
_OUTCOME: Final = ("forecast", "reasons", "rows", "reports")


def run_feed(
    runs: CatalogueRuns, run: StoredRun, permission: Permission
) -> tuple[EventFeed[int], Page[int]]:
    """Return the source of a run's events, and a page with its current state, the first event.

    The events end with the run, and when the sender may no longer see it.
    """

    async def read(version: int, _limit: int, wait_s: float) -> Page[int]:
        await asyncio.sleep(wait_s)
        try:
            newer = await runs.find(run.database_id, run.id)
        except Unavailable:  # the next poll can succeed
            return Page([], version)
        return _page(newer, version)

    async def check() -> bytes:
        if not permission():
            raise Forbidden("The run may not be shown any more.")
        return b""

    return EventFeed("run", ("runs", "version"), read, check), _page(run)


def run_document(run: StoredRun, *, detailed: bool) -> dict[str, Any]:
    """Return the JSON of a run; listings omit its job, its progress and its outcome."""
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
    if not detailed:
        return document
    for names, values in ((_PROGRESS, run.progress), (_OUTCOME, run.outcome)):
        document |= {name: values[name] for name in names if name in values}
    return {**document, "job": job}


def _page(run: StoredRun, known_version: int | None = None) -> Page[int]:
    item = Item(str(run.version), orjson.dumps(run_document(run, detailed=True)))
    return Page([item] if run.version != known_version else [], run.version, run.state in ENDED)
