"""A run as JSON."""

from __future__ import annotations

from typing import Any, Final

from mediator.catalogue.runs import StoredRun

__all__ = ["run_document"]

_PROGRESS: Final = ("stages", "counters", "elapsed_s", "eta_s", "log")
_OUTCOME: Final = ("forecast", "reasons", "rows", "reports")


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
        "created": run.created.isoformat(),
        "ended": run.ended and run.ended.isoformat(),
    }
    if not whole:
        return document
    progress: dict[str, Any] = {
        name: run.progress[name] for name in _PROGRESS if name in run.progress
    }
    outcome: dict[str, Any] = {name: run.outcome[name] for name in _OUTCOME if name in run.outcome}
    return {**document, **progress, **outcome, "job": job}
