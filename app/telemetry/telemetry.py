"""The log, metrics and traces, put together by the settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx

from app.coherence.caches import CacheEvents, log_purging
from app.settings.telemetry import TelemetrySettings
from app.telemetry.log import LOGGED, log_observation
from app.telemetry.metric_group import show
from app.telemetry.metrics import Metrics
from app.telemetry.otlp import OtlpExport
from app.telemetry.traces import TracedTransport
from mediator.base.clock import Clock, SystemClock
from mediator.base.errors import Unavailable
from mediator.base.observation import FilteredObserver, Observer
from mediator.service import Mediator
from sketch.purging.port import PurgeEvent

__all__ = ["JobRefresher", "Telemetry"]

_WORKER_SEEN_WITHIN_S: Final = 60.0

_REFRESH_S: Final = 5.0
"""Scrapes that follow each other sooner share one answer of the catalogue."""

_WITHIN_S: Final = 1.0
"""A catalogue that takes longer must not hold up the other metrics."""

_log = logging.getLogger("portolan.telemetry")


class Telemetry:
    """The log, the metrics, and the export of metrics and traces.

    Attributes:
        traces: Makes traces; None: nothing is exported.
    """

    def __init__(self, settings: TelemetrySettings) -> None:
        self.metrics = Metrics()
        self._export = OtlpExport(settings, self.metrics.registry) if settings.exports else None
        self.traces = self._export.traces if self._export else None
        self.observers: list[Observer] = [
            self.metrics.observe,
            FilteredObserver(log_observation, LOGGED),
            *([self.traces.observe] if self.traces else ()),
        ]

    def start(self, refresh: Callable[[], Awaitable[None]]) -> None:
        if self._export is not None:
            self._export.start(refresh)

    async def close(self) -> None:
        if self._export is not None:
            await self._export.close()

    def cache_events(self) -> CacheEvents:
        metrics = self.metrics
        return CacheEvents(
            self._observe_purging, metrics.observe, metrics.observe, metrics.measure_sketch
        )

    def connect(self) -> httpx.AsyncBaseTransport | None:
        """Return a transport of requests to a cache; None: nothing is traced."""
        return TracedTransport(self.traces) if self.traces is not None else None

    def job_refresher(self, mediator: Mediator) -> JobRefresher:
        async def count() -> tuple[Mapping[tuple[str, str], int], int]:
            workers = await mediator.workers.seen(_WORKER_SEEN_WITHIN_S)
            return await mediator.runs.count(), workers.working

        return JobRefresher(self.metrics, count, SystemClock())

    def _observe_purging(self, event: PurgeEvent) -> None:
        self.metrics.observe(event)
        log_purging(event)


@dataclass(eq=False)
class JobRefresher:
    """Refreshes the metrics of jobs, at most every few seconds.

    Without an answer of the catalogue the last counts stay.

    Attributes:
        _count: Counts the runs of each database in each state, and the workers at work.
    """

    _metrics: Metrics
    _count: Callable[[], Awaitable[tuple[Mapping[tuple[str, str], int], int]]]
    _clock: Clock
    _due: float = field(default=0.0, init=False)

    async def refresh(self) -> None:
        now = self._clock.monotonic()
        if now < self._due:
            return
        # Before the await: a scrape that comes meanwhile does not query the catalogue as well.
        self._due = now + _REFRESH_S
        try:
            async with asyncio.timeout(_WITHIN_S):
                runs, workers = await self._count()
        except (TimeoutError, Unavailable):
            _log.debug("the catalogue does not answer; the last counts of runs stay")
        else:
            show(self._metrics.runs, runs)
            self._metrics.workers.set(workers)
