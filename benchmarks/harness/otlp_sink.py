"""What receives telemetry: it speaks OTLP over HTTP, and keeps what it was sent."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

__all__ = ["OtlpSink", "attributes_of", "otlp_sink"]

_TRACES: Final = "/v1/traces"
_TAKEN: Final = {
    _TRACES: bytes(ExportTraceServiceResponse().SerializeToString()),
    "/v1/metrics": bytes(ExportMetricsServiceResponse().SerializeToString()),
}


class OtlpSink:
    """What was received: kept as it came, and decoded when somebody looks.

    Attributes:
        url: Where it listens.
        fields: The header fields of the last request to each path, in small letters.
        refusals: How many more requests with traces are refused, for the moment.
    """

    def __init__(self) -> None:
        self.url = ""
        self.fields: dict[str, Mapping[str, str]] = {}
        self.refusals = 0
        self._bodies: deque[tuple[str, bytes]] = deque()
        self._spans: list[Span] = []
        self._metrics: dict[str, Metric] = {}
        self._resource: Mapping[str, Any] = {}

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order in which they came."""
        self._decode()
        return self._spans

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name, as they came last."""
        self._decode()
        return self._metrics

    @property
    def resource(self) -> Mapping[str, Any]:
        """Attributes of who sent last."""
        self._decode()
        return self._resource

    def take(self, path: str, fields: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Take one request; return status and body of the answer."""
        if path == _TRACES and self.refusals:
            self.refusals -= 1
            return HTTPStatus.SERVICE_UNAVAILABLE, b""
        self.fields[path] = fields
        if fields.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self._bodies.append((path, body))
        return HTTPStatus.OK, _TAKEN[path]

    def traces(self) -> Iterator[ResourceSpans]:
        """Take out the traces that came since the last look; `spans` will not show them."""
        while self._bodies:
            path, body = self._bodies.popleft()
            if path == _TRACES:
                yield from ExportTraceServiceRequest.FromString(body).resource_spans
            else:
                self._take_metrics(body)

    def _decode(self) -> None:
        for traces in self.traces():
            self._resource = attributes_of(traces.resource.attributes)
            for scope in traces.scope_spans:
                self._spans += scope.spans

    def _take_metrics(self, body: bytes) -> None:
        for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            self._resource = attributes_of(metrics.resource.attributes)
            for of in metrics.scope_metrics:
                self._metrics |= {metric.name: metric for metric in of.metrics}


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Return attributes as a mapping."""
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    return getattr(pair.value, pair.value.WhichOneof("value") or "string_value")


@contextlib.contextmanager
def otlp_sink() -> Iterator[OtlpSink]:
    """Run a receiver on a free port while the block runs."""
    sink = OtlpSink()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # as the library calls it
            body = self.rfile.read(int(self.headers["content-length"]))
            fields = {name.lower(): value for name, value in self.headers.items()}
            status, answer = sink.take(self.path, fields, body)
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sink.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()
