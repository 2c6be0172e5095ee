"""The log, metrics and traces, assembled by the settings."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import httpx

from app.coherence.caches import CacheEvents, log_purging
from app.settings.telemetry import TelemetrySettings
from app.telemetry.log import LOGGED_EVENTS, log_observation
from app.telemetry.metric_group import show
from app.telemetry.metrics import Metrics
from app.telemetry.otlp import MetricsExport, process_resource
from app.telemetry.span_process import SpanProcess
from app.telemetry.traces import TracedTransport, Traces
from mediator.base.clock import Clock, SystemClock
from mediator.base.errors import Unavailable
from mediator.base.observation import FilteredObserver, Observer
from mediator.event_streams.service import EventStreamService
from mediator.routing.model import RoutingModel
from mediator.service import Mediator
from mediator.standing.service import StandingQueries
from sketch.purging.port import PurgeEvent

__all__ = ["CLOSE_S", "StateRefresher", "Telemetry"]

CLOSE_S: Final = 3.0
"""Seconds for the last export when the service ends."""

_WORKER_TIMEOUT_S: Final = 60.0

_REFRESH_S: Final = 5.0
"""Scrapes within this time share one answer."""

_TIMEOUT_S: Final = 1.0
"""A slower server must not delay the other metrics."""

_log = logging.getLogger("portolan.telemetry")


class Telemetry:
    """The log, the metrics, and the export of metrics and traces.

    Attributes:
        traces: Makes traces; None: nothing is exported.
    """

    def __init__(self, settings: TelemetrySettings) -> None:
        self.metrics = Metrics()
        resource = process_resource()
        self._metrics_export: MetricsExport | None = None
        if settings.exports("metrics"):
            self._metrics_export = MetricsExport(settings, resource, self.metrics.registry)
        self._spans: SpanProcess | None = None
        self.traces: Traces | None = None
        if settings.exports("traces"):
            self._spans = SpanProcess(settings, resource)
            self.traces = Traces(self._spans.put, settings.trace_ratio)
        self.observers: list[Observer] = [
            self.metrics.observe,
            FilteredObserver(log_observation, LOGGED_EVENTS),
            *([self.traces.observe] if self.traces else ()),
        ]

    def start(self, refresh: Callable[[], Awaitable[None]]) -> None:
        if self._metrics_export is not None:
            self._metrics_export.start(refresh)

    async def close(self) -> None:
        """Export what remains, as far as the receiver takes it within `CLOSE_S`."""
        exports = self._metrics_export, self._spans
        await asyncio.gather(*(export.close(CLOSE_S) for export in exports if export is not None))

    def cache_events(self) -> CacheEvents:
        metrics = self.metrics
        return CacheEvents(
            self._observe_purging, metrics.observe, metrics.observe, metrics.measure_sketch
        )

    def connect(self) -> httpx.AsyncBaseTransport | None:
        """Return a transport for requests to a cache; None: nothing is traced."""
        return TracedTransport(self.traces) if self.traces is not None else None

    def state_refresher(self, mediator: Mediator) -> StateRefresher:
        metrics = self.metrics

        async def measure_jobs() -> None:
            workers, runs = await mediator.workers.seen(_WORKER_TIMEOUT_S), mediator.runs
            show(metrics.runs, await runs.count())
            metrics.workers.set(workers.working)

        measures = [measure_jobs]
        queries, streams = mediator.standing_queries, mediator.event_stream_service
        if queries is not None and streams is not None:
            measures += [
                partial(_measure_queries, metrics, queries),
                partial(_measure_streams, metrics, streams, lambda: mediator.data.model),
            ]
        return StateRefresher(measures, SystemClock())

    def _observe_purging(self, event: PurgeEvent) -> None:
        self.metrics.observe(event)
        log_purging(event)


async def _measure_queries(metrics: Metrics, queries: StandingQueries) -> None:
    states = await queries.states()
    show(
        metrics.standing_queries,
        Counter((state.database, state.query.state.name) for state in states),
    )
    lags: dict[tuple[str], int] = {}
    for state in states:
        lags[state.database,] = max(state.load.lag, lags.get((state.database,), 0))
    show(metrics.standing_lag, lags)


async def _measure_streams(
    metrics: Metrics, streams: EventStreamService, model: Callable[[], RoutingModel]
) -> None:
    tuples: dict[tuple[str], int] = {}
    lags: dict[tuple[str], int] = {}
    names = {database.id: name for name, database in model().databases.items()}
    for id_, reports in (await streams.reports(names)).items():
        tuples[names[id_],] = sum(report.last - report.first + 1 for report in reports)
        lags[names[id_],] = max(report.furthest_behind for report in reports)
    show(metrics.stream_tuples, tuples)
    show(metrics.consumer_lag, lags)


@dataclass(eq=False)
class StateRefresher:
    """Refreshes the metrics of state on servers that replicas share, at most every few seconds.

    Without an answer the last values stay.

    Attributes:
        _measures: Functions that each query one server.
    """

    _measures: Sequence[Callable[[], Awaitable[None]]]
    _clock: Clock
    _due: float = field(default=0.0, init=False)

    async def refresh(self) -> None:
        now = self._clock.monotonic()
        if now < self._due:
            return
        # Before the await, so that a concurrent scrape does not query the servers too.
        self._due = now + _REFRESH_S
        await asyncio.gather(*map(_measure, self._measures))


async def _measure(measure: Callable[[], Awaitable[None]]) -> None:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await measure()
    except (TimeoutError, Unavailable):
        _log.debug("a server does not answer; the last values stay")
