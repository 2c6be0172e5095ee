"""What receives telemetry: it speaks OTLP over HTTP, and keeps what it was sent."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["OtlpSink", "attributes_of", "otlp_sink"]


class OtlpSink:
    """What was received.

    Attributes:
        url: Where it listens.
        spans: All spans, in the order in which they came.
        metrics: The metrics by name, as they came last.
        resource: Attributes of who sent last.
    """

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self.metrics: dict[str, Metric] = {}
        self.resource: Mapping[str, Any] = {}

    def take(self, path: str, body: bytes) -> bytes:
        """Take one request; return the body of the answer."""
        if path == "/v1/traces":
            for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource = attributes_of(traces.resource.attributes)
                for scope in traces.scope_spans:
                    self.spans += scope.spans
            return bytes(ExportTraceServiceResponse().SerializeToString())
        for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            self.resource = attributes_of(metrics.resource.attributes)
            for of in metrics.scope_metrics:
                self.metrics |= {metric.name: metric for metric in of.metrics}
        return bytes(ExportMetricsServiceResponse().SerializeToString())


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
            answer = sink.take(self.path, body)
            self.send_response(200)
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
