"""A telemetry receiver that records decoded signals, and refuses traces on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.harness.otlp_sink import TRACES, OtlpSink, attributes_of

__all__ = ["OtlpRecorder", "otlp_recorder"]


class OtlpRecorder(OtlpSink):
    """Records spans and metrics.

    Attributes:
        fields: The header fields of the last request to each path, in lower case.
        refusals: How many further requests with traces to refuse.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, Mapping[str, str]] = {}
        self.refusals = 0
        self._spans: list[Span] = []
        self._metrics: dict[str, Metric] = {}
        self._resource: Mapping[str, Any] = {}

    @property
    def spans(self) -> list[Span]:
        """All spans, in order of arrival."""
        self._decode()
        return self._spans

    @property
    def metrics(self) -> dict[str, Metric]:
        """The latest metrics by name."""
        self._decode()
        return self._metrics

    @property
    def resource(self) -> Mapping[str, Any]:
        """Attributes of the last sender."""
        self._decode()
        return self._resource

    def take(self, path: str, fields: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        if path == TRACES and self.refusals:
            self.refusals -= 1
            return HTTPStatus.SERVICE_UNAVAILABLE, b""
        self.fields[path] = fields
        return super().take(path, fields, body)

    def _decode(self) -> None:
        for path, body in self.bodies():
            if path == TRACES:
                for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                    self._resource = attributes_of(traces.resource.attributes)
                    for scope in traces.scope_spans:
                        self._spans += scope.spans
            else:
                for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    self._resource = attributes_of(metrics.resource.attributes)
                    for group in metrics.scope_metrics:
                        self._metrics |= {metric.name: metric for metric in group.metrics}


@contextmanager
def otlp_recorder() -> Iterator[OtlpRecorder]:
    """Run a receiver on a free port while the block runs."""
    recorder = OtlpRecorder()
    server = recorder.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
