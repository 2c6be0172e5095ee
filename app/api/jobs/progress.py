"""A run as JSON, and as server-sent events (HTML, section 9.2): one for every change."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from app.api.following import Followed, Item, Page
from app.api.jobs.rights import Permission
from mediator.base.errors import Forbidden, Unavailable
from mediator.catalogue.runs import ENDED, CatalogueRuns, StoredRun

__all__ = ["followed_run", "run_document"]

_PROGRESS: Final = ("stages", "counters", "elapsed_s", "eta_s", "log")
_OUTCOME: Final = ("forecast", "reasons", "rows", "reports")


def followed_run(
    runs: CatalogueRuns, run: StoredRun, permission: Permission
) -> tuple[Followed[int], Page[int]]:
    """Return what makes events of a run, and its present state, the first of them.

    They end with the run, and when it may no longer be shown.
    """

    async def read(version: int, _limit: int, wait_s: float) -> Page[int]:
        await asyncio.sleep(wait_s)
        try:
            newer = await runs.find(run.database_id, run.id)
        except Unavailable:  # the next poll may succeed
            return Page([], version)
        return _page(newer, version)

    async def check() -> bytes:
        if not permission():
            raise Forbidden("The run may not be shown any more.")
        return b""

    return Followed("run", ("runs", "version"), read, check), _page(run)


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


def _page(run: StoredRun, seen: int | None = None) -> Page[int]:
    item = Item(str(run.version), orjson.dumps(run_document(run, whole=True)))
    return Page([item] if run.version != seen else [], run.version, run.state in ENDED)
