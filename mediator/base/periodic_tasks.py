"""Periodic background tasks: each at its own interval, despite failed runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mediator.base.concurrency import end
from mediator.base.errors import PortolanError

__all__ = ["PeriodicTask", "Scheduler"]

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""Seconds a task gets to finish when the scheduler stops."""


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A function to run every `every_s` seconds; the log shows its name."""

    name: str
    every_s: float
    run: Callable[[], Awaitable[object]]


class Scheduler:
    def __init__(self, periodic_tasks: Sequence[PeriodicTask]) -> None:
        self._periodic_tasks = periodic_tasks
        self._stopped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._repeat(task)) for task in self._periodic_tasks]

    async def stop(self) -> None:
        """Stop, letting current runs finish."""
        self._stopped.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=GRACE_S)
            await end(late)

    async def _repeat(self, task: PeriodicTask) -> None:
        logged: str | None = None
        while not await self._is_stopped_within(task.every_s):
            try:
                await task.run()
                logged = None
            except PortolanError as error:
                # Once per outage and reason, not in every run.
                if (reason := str(error)) != logged:
                    log.warning("%s: %s", task.name, reason)
                logged = reason
            except Exception:
                log.exception("%s failed", task.name)

    async def _is_stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        return self._stopped.is_set()
