"""All metrics, in one registry that Prometheus scrapes and OTLP exports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.telemetry.caches import CacheMetrics
from app.telemetry.feed import FeedMetrics
from app.telemetry.jobs import JobMetrics
from app.telemetry.metric_group import Handler, MetricGroup
from app.telemetry.placements import PlacementMetrics, ViewMetrics
from app.telemetry.purging import PurgeMetrics, SketchMetrics
from app.telemetry.requests import RequestMetrics
from app.telemetry.stores import StoreMetrics
from app.telemetry.tenants import TenantMetrics
from mediator.base.observation import RequestFinished, StoreCallFinished, ViewReadFinished
from sketch.ttl.port import TtlGranted

__all__ = ["Metrics"]

MOST_WAITING: Final = 128
"""Events that wait to be counted, at most."""

_FREQUENT: Final = frozenset({RequestFinished, StoreCallFinished, TtlGranted, ViewReadFinished})


class Metrics(Collector):
    """The metrics of every group; `observe` is on the path of every request.

    Frequent events only wait there, and are counted many at a time, at the latest when the registry
    is read: the code that counts is warm then, and takes a fraction of the time.

    Attributes:
        registry: What is scraped.
        requests: Metrics of requests, whose gauges the composition root connects.
        caches: Metrics of caches, likewise.
        sketch: Metrics of the sketch, likewise.
        views: Metrics of views, likewise.
        jobs: Metrics of jobs, likewise.
        tenants: Metrics of tenants, likewise.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)  # before the others: they are collected in this order
        self.requests = RequestMetrics(self.registry)
        self.caches = CacheMetrics(self.registry)
        self.sketch = SketchMetrics(self.registry)
        self.views = ViewMetrics(self.registry)
        self.jobs = JobMetrics(self.registry)
        self.tenants = TenantMetrics(self.registry)
        groups: tuple[MetricGroup, ...] = (
            self.requests,
            StoreMetrics(self.registry),
            PlacementMetrics(self.registry),
            self.views,
            FeedMetrics(self.registry),
            PurgeMetrics(self.registry),
            self.caches,
            self.tenants,
        )
        self._handlers: dict[type[Any], Handler] = {
            kind: handle for group in groups for kind, handle in group.handlers.items()
        }
        self._waiting: list[Any] = []

    def observe(self, event: Any) -> None:
        """Count an event: an observation, or an event of caches and purging."""
        kind = event.__class__
        if kind in _FREQUENT:
            self._waiting.append(event)
            if len(self._waiting) >= MOST_WAITING:
                self._count_waiting()
        elif (handle := self._handlers.get(kind)) is not None:
            handle(event)

    def collect(self) -> Iterable[Metric]:
        """Count what waits, for the metrics that are collected next; it has none of its own."""
        self._count_waiting()
        self.requests.refresh()
        self.caches.refresh()
        self.views.refresh()
        self.tenants.refresh()
        return ()

    def _count_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        handlers = self._handlers
        for event in waiting:
            handlers[event.__class__](event)
