"""A worker that is seen, so that jobs are taken, and carries none out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from mediator.base.periodic_tasks import PeriodicTask, Scheduler
from mediator.catalogue.run_queue import CatalogueWorkers

__all__ = ["idle_worker"]

_HEARTBEAT_S = 5.0
"""Often enough for the minute after which a worker counts as lost, however slow the tests are."""


@asynccontextmanager
async def idle_worker(workers: CatalogueWorkers) -> AsyncIterator[None]:
    """Let a worker be seen while the block runs."""
    heartbeat = partial(workers.heartbeat, "test", None)
    await heartbeat()
    watch = Scheduler([PeriodicTask("heartbeat", _HEARTBEAT_S, heartbeat)])
    watch.start()
    try:
        yield
    finally:
        await watch.stop()
