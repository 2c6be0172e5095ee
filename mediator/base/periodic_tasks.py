"""What goes on in the background: each duty at its own pace, unharmed by its own failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from mediator.base.cancellation import end
from mediator.base.errors import PortolanError

__all__ = ["PeriodicTask", "Scheduler"]

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""Seconds a duty gets to finish when the watch ends."""


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """Something to be done again and again.

    Attributes:
        name: For the log.
        every_s: Seconds between two runs.
        run: Does it once.
    """

    name: str
    every_s: float
    run: Callable[[], Awaitable[object]]


class Scheduler:
    """Runs periodic tasks until it is stopped."""

    def __init__(self, periodic_tasks: Sequence[PeriodicTask]) -> None:
        self._periodic_tasks = periodic_tasks
        self._ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin with every duty."""
        self._tasks = [asyncio.create_task(self._keep(duty)) for duty in self._periodic_tasks]

    async def stop(self) -> None:
        """End, letting what is under way finish."""
        self._ended.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=GRACE_S)
            await end(late)

    async def _keep(self, duty: PeriodicTask) -> None:
        failing = False
        while not await self._ends_within(duty.every_s):
            try:
                await duty.run()
                failing = False
            except PortolanError as error:
                if not failing:
                    log.warning("%s: %s", duty.name, error)
                failing = True
            except Exception:
                log.exception("%s failed", duty.name)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._ended.wait()
        except TimeoutError:
            return False
