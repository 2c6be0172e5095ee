"""All metrics, in one registry that Prometheus scrapes and OTLP exports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.telemetry.caches import CacheMetrics
from app.telemetry.events import (
    admission_handlers,
    feed_handlers,
    flow_handlers,
    placement_handlers,
    purge_handlers,
    request_handlers,
    stream_handlers,
    tenant_handlers,
    view_handlers,
)
from app.telemetry.metric_group import OF_CLASS, gauge, show
from app.telemetry.stores import batch_handlers, call_handlers, system_handlers
from mediator.base.observation import (
    BatchFinished,
    RequestFinished,
    StoreCallFinished,
    ViewReadFinished,
)
from sketch.protocol.port import SketchPartitionState
from sketch.ttl.port import TtlGranted

__all__ = ["Metrics"]

MAX_WAITING: Final = 128
"""Maximum events that wait to be counted."""

_FREQUENT: Final = frozenset(
    {BatchFinished, RequestFinished, StoreCallFinished, TtlGranted, ViewReadFinished}
)
_SKETCH_GAUGES: Final = {
    "keys": ("keys", "Keys in the filter."),
    "bits_set": ("bits_set", "Bits of the filter that are set."),
    "pending": ("pending_writes", "Writes that are pending."),
    "purges_due": ("purges_due", "Purges that nobody sends yet."),
}
"""Names and descriptions of the gauges of the sketch, by the member of `SketchPartitionState`."""


class Metrics(Collector):
    """The metrics of every group; `observe` runs on every request.

    It only buffers frequent events, which are counted in batches, at the latest when the registry
    is read: the counting code is warm then, and takes a fraction of the time. The composition root
    connects the gauges that no event carries.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        registry.register(self)  # first, as collectors are called in this order
        requests = request_handlers(registry)
        request_labels = "http_request_method", "url_scheme"
        about = "Requests under way."
        self.active = gauge(registry, "http_server_active_requests", about, *request_labels)
        about = "For how long the feed may have lacked changes of a system."
        self.feed_lags = gauge(registry, "portolan_feed_lag_seconds", about, "database", "system")
        about = "Clients that follow a feed."
        self.subscribers = gauge(registry, "portolan_feed_subscribers", about)
        self.caches = CacheMetrics(registry)
        self._sketch = {
            member: gauge(registry, f"portolan_sketch_{name}", about, *OF_CLASS)
            for member, (name, about) in _SKETCH_GAUGES.items()
        }
        views = view_handlers(registry)
        about = "How old the copies of a class in its view may be."
        self.view_ages = gauge(registry, "portolan_view_staleness_seconds", about, *OF_CLASS)
        about = "Runs that the catalogue keeps."
        self.runs = gauge(registry, "portolan_runs", about, "database", "state")
        self.workers = gauge(registry, "portolan_workers", "Workers that carry out runs.")
        streams = stream_handlers(registry)
        about = "Standing queries, by their state."
        self.standing_queries = gauge(
            registry, "portolan_standing_queries", about, "database", "state"
        )
        about = "Tuples that the standing query which is furthest behind has not executed."
        self.standing_lag = gauge(registry, "portolan_standing_query_lag_tuples", about, "database")
        about = "Tuples that event streams keep."
        self.stream_tuples = gauge(registry, "portolan_event_stream_tuples", about, "database")
        about = "Tuples by which the consumer that is furthest behind is behind an event stream."
        self.consumer_lag = gauge(
            registry, "portolan_event_stream_consumer_lag_tuples", about, "database"
        )
        tenants = tenant_handlers(registry)
        about = "Objects that a tenant keeps."
        self.tenant_objects = gauge(registry, "portolan_tenant_objects", about, "tenant")
        self._sources: list[tuple[Gauge, Callable[[], Mapping[Any, float]]]] = []
        self._handlers = {
            **requests,
            **call_handlers(registry),
            **batch_handlers(registry),
            **system_handlers(registry),
            **placement_handlers(registry),
            **views,
            **feed_handlers(registry),
            **purge_handlers(registry),
            **self.caches.handlers,
            **tenants,
            **flow_handlers(registry),
            **streams,
            **admission_handlers(registry),
        }
        self._waiting: list[Any] = []

    def observe(self, event: Any) -> None:
        kind = event.__class__
        if kind in _FREQUENT:
            self._waiting.append(event)
            if len(self._waiting) >= MAX_WAITING:
                self.count_waiting()
        elif (handle := self._handlers.get(kind)) is not None:
            handle(event)

    def connect(self, target: Gauge, source: Callable[[], Mapping[Any, float]]) -> None:
        """Set a gauge to the values of a source, by labels, whenever the registry is read."""
        self._sources.append((target, source))

    def measure_sketch(self, states: Sequence[SketchPartitionState]) -> None:
        for name, target in self._sketch.items():
            show(target, {state.partition: getattr(state, name) for state in states})

    def collect(self) -> Iterable[Metric]:
        """Count waiting events for the metrics that are collected next; return none."""
        self.count_waiting()
        self.caches.refresh()
        for target, source in self._sources:
            show(target, source())
        return ()

    def count_waiting(self) -> None:
        """Count the waiting events, as every read of the registry does."""
        waiting, self._waiting = self._waiting, []
        handlers = self._handlers
        for event in waiting:
            handlers[event.__class__](event)
