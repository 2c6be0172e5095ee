"""The metrics of the registry in the data model of the OpenTelemetry SDK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Final

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
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

__all__ = ["metrics_data"]

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


def metrics_data(
    families: Iterable[Family], resource: Resource, started_ns: int, now_ns: int
) -> MetricsData:
    """Translate metrics of the semantic conventions to their own names.

    All others keep the names under which they are scraped, without what the text format adds to
    them.
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
        below = sorted(
            (float(bound), count)
            for bound, count in values.items()
            if bound not in ("count", "sum", "created")
        )
        # Prometheus cumulates the counts of buckets, and OTLP does not.
        cumulated = [0.0, *(count for _, count in below)]
        counts = [int(b - a) for a, b in pairwise(cumulated)]
        bounds = [bound for bound, _ in below if bound != inf]
        return HistogramDataPoint(
            _attributes(labels),
            *self._times,
            int(total),
            sum_,
            counts,
            bounds,
            min=None,  # type: ignore[arg-type]  # optional in OTLP, and Prometheus keeps none
            max=None,  # type: ignore[arg-type]  # likewise
        )


def _attributes(labels: Iterable[tuple[str, str]]) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {}
    for label, value in labels:
        if value:
            name = _ATTRIBUTES.get(label, label)
            attributes[name] = int(value) if name in _INTEGERS else value
    return attributes
