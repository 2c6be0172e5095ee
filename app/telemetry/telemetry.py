"""The log, metrics and traces, put together by the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import httpx

from app.coherence.caches import CacheEvents, log_purging
from app.settings.telemetry import TelemetrySettings
from app.telemetry.jobs import JobRefresher
from app.telemetry.log import LOGGED, log_observation
from app.telemetry.metrics import Metrics
from app.telemetry.otlp import OtlpExport
from app.telemetry.traces import TracedTransport
from mediator.base.clock import SystemClock
from mediator.base.observation import FilteredObserver, Observer
from mediator.service import Mediator
from sketch.purging.port import PurgeEvent

__all__ = ["Telemetry"]

_WORKER_SEEN_WITHIN_S: Final = 60.0


class Telemetry:
    """The log, the metrics, and the export of metrics and traces.

    Attributes:
        traces: Makes traces; None: nothing is exported.
    """

    def __init__(self, settings: TelemetrySettings) -> None:
        self.metrics = Metrics()
        self._export = OtlpExport(settings, self.metrics.registry) if settings.exports else None
        self.traces = self._export.traces if self._export else None
        observers: list[Observer] = [
            self.metrics.observe,
            FilteredObserver(log_observation, LOGGED),
        ]
        if self.traces is not None:
            observers.append(self.traces.observe)
        self.observers = tuple(observers)

    def start(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Begin to export; see `OtlpExport.start`."""
        if self._export is not None:
            self._export.start(refresh)

    async def close(self) -> None:
        """Export what is left; see `OtlpExport.close`."""
        if self._export is not None:
            await self._export.close()

    def cache_events(self) -> CacheEvents:
        """Return the observers of caches and purging."""
        metrics = self.metrics
        return CacheEvents(
            self._observe_purging,
            metrics.observe,
            metrics.observe,
            metrics.measure_sketch,
        )

    def connect(self) -> httpx.AsyncBaseTransport | None:
        """Return a transport of requests to a cache; None: nothing is traced."""
        return TracedTransport(self.traces) if self.traces is not None else None

    def job_refresher(self, mediator: Mediator) -> JobRefresher:
        """Return what refreshes the metrics of jobs at a scrape."""

        async def count() -> tuple[Mapping[tuple[str, str], int], int]:
            workers = await mediator.workers.seen(_WORKER_SEEN_WITHIN_S)
            return await mediator.runs.count(), workers.working

        return JobRefresher(self.metrics, count, SystemClock())

    def _observe_purging(self, event: PurgeEvent) -> None:
        self.metrics.observe(event)
        log_purging(event)
