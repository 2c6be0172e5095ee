"""All metrics, in one registry that Prometheus scrapes and OTLP exports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.telemetry.area import Area, Hear
from app.telemetry.caches import CacheMetrics
from app.telemetry.feed import FeedMetrics
from app.telemetry.jobs import JobMetrics
from app.telemetry.placements import PlacementMetrics, ViewMetrics
from app.telemetry.purging import PurgeMetrics, SketchMetrics
from app.telemetry.requests import RequestMetrics
from app.telemetry.stores import StoreMetrics
from app.telemetry.tenants import TenantMetrics
from mediator.base.observation import RequestFinished, StoreCallFinished, ViewReadFinished
from sketch.ttl.events import TtlGranted

__all__ = ["Instruments"]

MOST_WAITING: Final = 128
"""Events that wait to be counted, at most."""

_FREQUENT: Final = frozenset({RequestFinished, StoreCallFinished, TtlGranted, ViewReadFinished})


class Instruments(Collector):
    """The metrics of every area; `observe` is on the path of every request.

    What is told there for every request only waits, and is counted many at a time, at the latest
    when the registry is read: the code that counts is warm then, and takes a fraction of the time.

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
        self.registry.register(self)  # before the others: they are asked in this order
        self.requests = RequestMetrics(self.registry)
        self.caches = CacheMetrics(self.registry)
        self.sketch = SketchMetrics(self.registry)
        self.views = ViewMetrics(self.registry)
        self.jobs = JobMetrics(self.registry)
        self.tenants = TenantMetrics(self.registry)
        areas: tuple[Area, ...] = (
            self.requests,
            StoreMetrics(self.registry),
            PlacementMetrics(self.registry),
            self.views,
            FeedMetrics(self.registry),
            PurgeMetrics(self.registry),
            self.caches,
            self.tenants,
        )
        self._hears: dict[type[Any], Hear] = {
            kind: hear for area in areas for kind, hear in area.hears.items()
        }
        self._waiting: list[Any] = []

    def observe(self, told: Any) -> None:
        """Count what happened: an observation, or what caches and purging tell of."""
        kind = told.__class__
        if kind in _FREQUENT:
            self._waiting.append(told)
            if len(self._waiting) >= MOST_WAITING:
                self._count_waiting()
        elif (hear := self._hears.get(kind)) is not None:
            hear(told)

    def collect(self) -> Iterable[Metric]:
        """Count what waits, so that the metrics asked next have it; there is none of its own."""
        self._count_waiting()
        self.requests.look()
        self.caches.look()
        self.views.look()
        self.tenants.look()
        return ()

    def _count_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        hears = self._hears
        for told in waiting:
            hears[told.__class__](told)
