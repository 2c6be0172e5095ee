"""Export of metrics by OTLP over HTTP, in the data model of the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from math import inf
from threading import Thread
from time import time_ns
from typing import Any, Final
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from app.settings.telemetry import TelemetrySettings
from mediator.base.concurrency import end

__all__ = ["MetricsExport", "process_resource"]

_SCOPE: Final = InstrumentationScope("portolan")
_ATTRIBUTES: Final = {
    name.replace(".", "_"): name
    for name in (
        "db.collection.name",
        "db.namespace",
        "db.operation.name",
        "db.system.name",
        "error.type",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "portolan.system",
        "url.scheme",
    )
}
_NAMES: Final = {
    "db_client_operation_duration_seconds": "db.client.operation.duration",
    "http_server_active_requests": "http.server.active_requests",
    "http_server_request_duration_seconds": "http.server.request.duration",
}
_INTEGERS: Final = frozenset({"http.response.status_code"})
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE

_Labels = tuple[tuple[str, str], ...]


class MetricsExport:
    """Exports metrics until it is closed.

    If the receiver is slow or away, only the newest state is exported.

    Args:
        registry: The metrics; read on the event loop, where they are counted.
    """

    def __init__(
        self, settings: TelemetrySettings, resource: Resource, registry: CollectorRegistry
    ) -> None:
        self._resource = resource
        self._metrics = OTLPMetricExporter(
            settings.endpoint("metrics"), timeout=settings.otlp_timeout_s
        )
        self._registry = registry
        self._every_s = settings.otlp_every_s
        self._started_ns = time_ns()
        self._exporting: Thread | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Start to export; before each export, `refresh` updates metrics that no event carries."""
        self._task = asyncio.create_task(self._export_metrics(refresh))

    async def close(self, within_s: float) -> None:
        """Export the last state, if the receiver takes it within some seconds."""
        if self._task is not None:
            await end([self._task])
        last = _start(self._close_metrics, self._exporting, self._collect())
        await asyncio.to_thread(last.join, within_s)

    async def _export_metrics(self, refresh: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if self._exporting is None or not self._exporting.is_alive():
                await refresh()
                self._exporting = _start(self._metrics.export, self._collect())

    def _collect(self) -> MetricsData:
        return _metrics_data(self._registry.collect(), self._resource, self._started_ns, time_ns())

    def _close_metrics(self, exporting: Thread | None, last: MetricsData) -> None:
        if exporting is not None:
            exporting.join()  # an exporter has one connection, which threads cannot share
        self._metrics.export(last)
        self._metrics.shutdown()


def _start(run: Callable[..., Any], *arguments: Any) -> Thread:
    # A daemon, so that the process does not wait for a receiver when it ends.
    thread = Thread(target=run, args=arguments, name="otlp", daemon=True)
    thread.start()
    return thread


def process_resource() -> Resource:
    """Return the identity of this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    attributes = {
        "service.name": "portolan",
        "service.version": version("portolan"),
        "service.instance.id": str(uuid4()),
    }
    return Resource(attributes).merge(OTELResourceDetector().detect())


def _metrics_data(
    families: Iterable[Family], resource: Resource, started_ns: int, now_ns: int
) -> MetricsData:
    """Give metrics of the semantic conventions their own names.

    All others keep the names under which they are scraped, without the suffixes of the text format.
    """
    points = _Points((started_ns, now_ns))
    metrics = [_metric(family, points) for family in families if family.samples]
    scope = ScopeMetrics(_SCOPE, metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, points: _Points) -> Metric:
    name = _NAMES.get(family.name, family.name)
    unit = "s" if family.name.endswith("_seconds") else ""
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(list(points.histograms(family.samples)), _CUMULATIVE)
    elif family.type == "counter":
        data = Sum(points.numbers(family.samples, "_total"), _CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(points.numbers(family.samples, ""))
    return Metric(name, family.documentation, unit, data)


@dataclass(frozen=True)
class _Points:
    _times: tuple[int, int]

    def numbers(self, samples: Sequence[Sample], ending: str) -> list[NumberDataPoint]:
        return [
            NumberDataPoint(_attributes(sample.labels.items()), *self._times, sample.value)
            for sample in samples
            if sample.name.endswith(ending)
        ]

    def histograms(self, samples: Sequence[Sample]) -> Iterator[HistogramDataPoint]:
        by_labels: dict[_Labels, dict[str, float]] = {}
        for sample in samples:
            labels = tuple(item for item in sample.labels.items() if item[0] != "le")
            # A bound of a bucket, or `count`, `sum`, `created`.
            key = sample.labels.get("le") or sample.name.rpartition("_")[2]
            by_labels.setdefault(labels, {})[key] = sample.value
        for labels, values in by_labels.items():
            yield self._histogram(labels, values)

    def _histogram(self, labels: _Labels, values: Mapping[str, float]) -> HistogramDataPoint:
        total, sum_ = values["count"], values["sum"]
        buckets = sorted(
            (float(bound), count)
            for bound, count in values.items()
            if bound not in ("count", "sum", "created")
        )
        # Prometheus' bucket counts are cumulative, OTLP's are not.
        cumulative = [0.0, *(count for _, count in buckets)]
        counts = [int(upper - lower) for lower, upper in pairwise(cumulative)]
        bounds = [bound for bound, _ in buckets if bound != inf]
        return HistogramDataPoint(
            _attributes(labels),
            *self._times,
            int(total),
            sum_,
            counts,
            bounds,
            min=None,  # type: ignore[arg-type]  # optional in OTLP, and absent in Prometheus
            max=None,  # type: ignore[arg-type]  # likewise
        )


def _attributes(labels: Iterable[tuple[str, str]]) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {}
    for label, value in labels:
        if value:
            name = _ATTRIBUTES.get(label, label)
            attributes[name] = int(value) if name in _INTEGERS else value
    return attributes
