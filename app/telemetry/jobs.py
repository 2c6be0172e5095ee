"""Metrics of runs and workers, which are read from the catalogue at a scrape."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from app.telemetry.metric_group import show
from app.telemetry.metrics import Metrics
from mediator.base.clock import Clock
from mediator.base.errors import Unavailable

__all__ = ["JobRefresher"]

_log = logging.getLogger("portolan.telemetry")

_REFRESH_S: Final = 5.0
"""Scrapes that follow each other sooner share one answer of the catalogue."""

_WITHIN_S: Final = 1.0
"""A catalogue that takes longer must not hold up the other metrics."""


class JobRefresher:
    """Refreshes the metrics of jobs, at most every few seconds.

    Without an answer of the catalogue the last counts stay.

    Args:
        metrics: Show them.
        count: Counts the runs of each database in each state, and the workers at work.
    """

    def __init__(
        self,
        metrics: Metrics,
        count: Callable[[], Awaitable[tuple[Mapping[tuple[str, str], int], int]]],
        clock: Clock,
    ) -> None:
        self._metrics = metrics
        self._count = count
        self._clock = clock
        self._due = 0.0

    async def refresh(self) -> None:
        """Count anew, if the last answer is old enough."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._due = now + _REFRESH_S
        try:
            async with asyncio.timeout(_WITHIN_S):
                runs, workers = await self._count()
        except (TimeoutError, Unavailable):
            _log.debug("the catalogue does not answer; the last counts of runs stay")
        else:
            show(self._metrics.runs, runs)
            self._metrics.workers.set(workers)
