"""Metrics of runs and workers, which the catalogue is asked for at a scrape."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from app.telemetry.metric_group import gauge
from mediator.base.clock import Clock
from mediator.base.errors import Unavailable

__all__ = ["JobCounts", "JobMetrics", "JobRefresher"]

_log = logging.getLogger("portolan.telemetry")

_REFRESH_S: Final = 5.0
"""Scrapes that follow each other sooner share one answer of the catalogue."""

_WITHIN_S: Final = 1.0
"""A catalogue that takes longer must not hold up the other metrics."""


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How many runs are in each state, and how many workers are at work."""

    runs: Mapping[tuple[str, str], int]
    """By database and state."""

    workers: int


class JobMetrics:
    """Runs by state, and workers. Without an answer of the catalogue the last counts stay."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = gauge(
            registry, "portolan_runs", "Runs that the catalogue keeps.", "database", "state"
        )
        self._workers = gauge(registry, "portolan_workers", "Workers that carry out runs.")

    def show(self, counts: JobCounts) -> None:
        """Show counts; a state without runs is shown no more."""
        self._runs.clear()
        for labels, count in counts.runs.items():
            self._runs.labels(*labels).set(count)
        self._workers.set(counts.workers)


class JobRefresher:
    """Refreshes the metrics of jobs, at most every few seconds."""

    def __init__(
        self, metrics: JobMetrics, ask: Callable[[], Awaitable[JobCounts]], clock: Clock
    ) -> None:
        self._metrics = metrics
        self._ask = ask
        self._clock = clock
        self._due = 0.0

    async def refresh(self) -> None:
        """Ask, if the last answer is old enough."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._due = now + _REFRESH_S
        try:
            async with asyncio.timeout(_WITHIN_S):
                self._metrics.show(await self._ask())
        except (TimeoutError, Unavailable):
            _log.debug("the catalogue does not answer; the last counts of runs stay")
