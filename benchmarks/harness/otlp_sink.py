"""A receiver of telemetry: it speaks OTLP over HTTP, and stores what it receives."""

from __future__ import annotations

import gzip
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

__all__ = ["TRACES", "OtlpSink", "attributes_of"]

TRACES: Final = "/v1/traces"
_REPLIES: Final = {
    TRACES: bytes(ExportTraceServiceResponse().SerializeToString()),
    "/v1/metrics": bytes(ExportMetricsServiceResponse().SerializeToString()),
}


class OtlpSink:
    """Stores requests undecoded, and decodes them when they are read."""

    def __init__(self) -> None:
        self.url = ""
        self._bodies: deque[tuple[str, bytes]] = deque()

    def take(self, path: str, fields: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Accept a request with lower-case field names; return the status and body of the reply."""
        if fields.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self._bodies.append((path, body))
        return HTTPStatus.OK, _REPLIES[path]

    def bodies(self) -> Iterator[tuple[str, bytes]]:
        """Remove and yield path and body of the requests since the last call."""
        while self._bodies:
            yield self._bodies.popleft()

    def traces(self) -> Iterator[ResourceSpans]:
        """Remove and yield the traces since the last call, and drop the metrics."""
        for path, body in self.bodies():
            if path == TRACES:
                yield from ExportTraceServiceRequest.FromString(body).resource_spans

    def start(self) -> ThreadingHTTPServer:
        """Receive on a free port, until the server is shut down or the process ends."""
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # as the library calls it
                body = self.rfile.read(int(self.headers["content-length"]))
                fields = {name.lower(): value for name, value in self.headers.items()}
                status, reply = sink.take(self.path, fields, body)
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server


def attributes_of(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    return getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
