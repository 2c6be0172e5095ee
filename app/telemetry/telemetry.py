"""Everything that is told to the outside, put together by the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx

from app.coherence.caches import CacheEvents
from app.coherence.purges import log_purging
from app.settings.telemetry import TelemetrySettings
from app.telemetry.instruments import Instruments
from app.telemetry.jobs import JobFigures, JobWatch
from app.telemetry.log import LOGGED, log_observation
from app.telemetry.otlp import OtlpExport
from app.telemetry.outgoing import TracedTransport
from mediator.base.clock import SystemClock
from mediator.base.observation import FilteredObserver, Observer
from mediator.service import Mediator
from sketch.purging.events import PurgeEvent

__all__ = ["Telemetry"]


class Telemetry:
    """The log, the metrics, and what sends metrics and traces.

    Attributes:
        instruments: The metrics.
        traces: Makes traces; None: nobody receives any.
        observers: Who is told of what happens.
    """

    def __init__(self, settings: TelemetrySettings) -> None:
        self.instruments = Instruments()
        self._export = OtlpExport(settings, self.instruments.registry) if settings.exports else None
        self.traces = self._export.traces if self._export else None
        observers: list[Observer] = [
            self.instruments.observe,
            FilteredObserver(log_observation, LOGGED),
        ]
        if self.traces is not None:
            observers.append(self.traces.observe)
        self.observers = tuple(observers)

    def start(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Begin to send; `refresh` looks up before that what nobody tells of."""
        if self._export is not None:
            self._export.start(refresh)

    async def close(self) -> None:
        """Send what is left, as far as the receiver takes it in time."""
        if self._export is not None:
            await self._export.close()

    def cache_events(self) -> CacheEvents:
        """Return who is told of what caches and purging do."""
        instruments = self.instruments
        return CacheEvents(
            self._hear_purging,
            instruments.observe,
            instruments.observe,
            instruments.sketch.measure,
        )

    def connect(self) -> httpx.AsyncBaseTransport | None:
        """Make what sends requests to a cache; None: nothing is traced."""
        return TracedTransport(self.traces) if self.traces is not None else None

    def job_watch(self, mediator: Mediator) -> JobWatch:
        """Return what looks up how jobs are, at a scrape."""

        async def ask() -> JobFigures:
            workers = await mediator.workers.seen(_WORKER_SEEN_WITHIN_S)
            return JobFigures(await mediator.runs.count(), workers.working)

        return JobWatch(self.instruments.jobs, ask, SystemClock())

    def _hear_purging(self, told: PurgeEvent) -> None:
        self.instruments.observe(told)
        log_purging(told)


_WORKER_SEEN_WITHIN_S = 60.0
