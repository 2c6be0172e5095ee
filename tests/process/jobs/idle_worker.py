"""A worker that only sends heartbeats, so that jobs are accepted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from mediator.base.periodic_tasks import PeriodicTask, Scheduler
from mediator.catalogue.run_queue import CatalogueWorkers

__all__ = ["idle_worker"]

_HEARTBEAT_S = 5.0
"""Well below the minute after which a worker counts as lost, for slow tests."""


@asynccontextmanager
async def idle_worker(workers: CatalogueWorkers) -> AsyncIterator[None]:
    """Send heartbeats of a worker while the block runs."""
    heartbeat = partial(workers.heartbeat, "test", None)
    await heartbeat()
    scheduler = Scheduler([PeriodicTask("heartbeat", _HEARTBEAT_S, heartbeat)])
    scheduler.start()
    try:
        yield
    finally:
        await scheduler.stop()
