"""Metrics and traces are exported by OTLP, and no receiver delays a request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Any

import orjson
import psutil
import pytest
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from app.settings.telemetry import TelemetrySettings
from app.telemetry import telemetry as composition
from app.telemetry.otlp import process_resource
from app.telemetry.span_process import MAX_WAITING, SpanProcess
from app.telemetry.spans import SpanRecord, record_span
from app.telemetry.telemetry import Telemetry
from app.telemetry.traces import MAX_CALLS, traced
from benchmarks.harness.otlp_sink import attributes_of
from mediator.base.observation import RequestFinished, StoreCallFinished, SystemRegistered
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.operation.otlp_recorder import OtlpRecorder, otlp_recorder
from tests.process.service import scratch_catalogue, scratch_systems, unique

ROUTE = "/v1/{database}/{class}/{id}"
READ = StoreCallFinished("cache", "news", "articles", "read", 2, 0.02, "ok")
DONE = RequestFinished("GET", ROUTE, 200, 0.03)
REQUESTS = 2 * MAX_WAITING


@asynccontextmanager
async def telemetry(url: str, **settings: Any) -> AsyncIterator[Telemetry]:
    # A late response must neither resend nor drop spans.
    settings = {"otlp_timeout_s": 60.0, **settings}
    composed = TelemetrySettings(otlp_endpoint=url, trace_ratio=1.0, **settings)
    sender = Telemetry(composed)
    sender.start(no_refresh)
    try:
        yield sender
    finally:
        await sender.close()


async def no_refresh() -> None:
    """Refresh no metrics."""


async def requests(telemetry: Telemetry, count: int = 1) -> None:
    """Serve requests."""

    async def app(*_: Any) -> None:
        for event in (READ, DONE):
            for observe in telemetry.observers:
                observe(event)

    async def unused(*_: Any) -> Any:
        raise AssertionError

    serve = traced(app, telemetry.traces)
    for _ in range(count):
        await serve({"type": "http", "headers": ()}, unused, unused)


async def wait_for_spans(sink: OtlpRecorder, spans: int) -> None:
    """Wait for spans."""

    async def have_arrived() -> bool:
        return len(sink.spans) == spans

    await eventually(have_arrived)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpRecorder]:
    """A receiver; telemetry waits at its end for the remaining spans."""
    monkeypatch.setattr(composition, "CLOSE_S", 60.0)
    with otlp_recorder() as recorder:
        yield recorder


async def test_observations_are_exported_under_their_standard_names(sink: OtlpRecorder) -> None:
    async with telemetry(sink.url) as sender:
        for observe in sender.observers:
            observe(SystemRegistered("cache", "redis", "Redis 7"))
        await requests(sender)
        await wait_for_spans(sink, 2)
    assert sink.resource["service.name"] == "portolan"
    assert [span.name for span in sink.spans] == ["read articles", f"GET {ROUTE}"]
    call, request = sink.spans
    assert call.parent_span_id == request.span_id
    assert call.trace_id == request.trace_id
    duration = sink.metrics["http.server.request.duration"]
    (point,) = duration.histogram.data_points
    assert (duration.unit, point.count, point.sum) == ("s", 1, 0.03)
    assert attributes_of(point.attributes) == {
        "http.request.method": "GET",
        "http.route": ROUTE,
        "http.response.status_code": 200,
        "url.scheme": "http",
    }
    assert list(point.explicit_bounds)[:3] == [0.005, 0.01, 0.025]
    assert list(point.bucket_counts)[:4] == [0, 0, 0, 1]
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert not point.HasField("min")
    (call_point,) = sink.metrics["db.client.operation.duration"].histogram.data_points
    assert attributes_of(call_point.attributes) == {
        "db.system.name": "redis",
        "db.namespace": "news",
        "db.collection.name": "articles",
        "db.operation.name": "read",
        "portolan.system": "cache",
    }
    (sent,) = sink.metrics["portolan_store_operations"].sum.data_points
    assert sent.as_double == 2


async def test_metrics_are_sent_periodically(sink: OtlpRecorder) -> None:
    async def have_counted(count: int) -> bool:
        metric = sink.metrics.get("http.server.request.duration")
        return metric is not None and metric.histogram.data_points[0].count == count

    async with telemetry(sink.url, otlp_every_s=1.0) as sender:
        for count in (1, 2):
            await requests(sender)
            await eventually(partial(have_counted, count))


@contextmanager
def unresponsive() -> Iterator[socket.socket]:
    """Accept connections, and never answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener


async def test_a_receiver_that_never_answers_delays_nothing() -> None:
    with unresponsive() as listener:
        host, port = listener.getsockname()
        # The timeout exceeds the test's: a waiting request would show.
        async with telemetry(f"http://{host}:{port}") as sender:
            await requests(sender, REQUESTS)
            connection, _ = await asyncio.to_thread(listener.accept)
            connection.settimeout(60)
            assert (await asyncio.to_thread(connection.recv, 4)) == b"POST"
            await requests(sender, REQUESTS)
        connection.close()


async def test_a_missing_receiver_delays_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host, port = closed.getsockname()
    async with telemetry(f"http://{host}:{port}", otlp_timeout_s=3.0) as sender:
        await requests(sender, REQUESTS)


async def test_a_killed_exporter_is_replaced(sink: OtlpRecorder) -> None:
    async with telemetry(sink.url) as sender:

        async def more_than(spans: int) -> bool:
            await requests(sender)
            return len(sink.spans) > spans

        await eventually(partial(more_than, 0))
        (exporter,) = exporters()
        exporter.kill()

        async def is_replaced() -> bool:
            return any(process.pid != exporter.pid for process in exporters())

        await eventually(is_replaced)  # spans of the first one can arrive until then
        await eventually(partial(more_than, len(sink.spans)))
        (replacement,) = exporters()
    assert not replacement.is_running()
    assert not exporters()


def exporters() -> list[psutil.Process]:
    """Return the child processes that export spans."""
    return [child for child in psutil.Process().children() if is_exporter(child)]


def is_exporter(child: psutil.Process) -> bool:
    try:
        return "app.telemetry.span_process" in child.cmdline()
    except psutil.NoSuchProcess:  # it has ended, reaped or not
        return False


async def test_spans_without_a_receiver_are_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with unresponsive() as listener:
        host, port = listener.getsockname()
        async with telemetry(f"http://{host}:{port}") as sender:

            async def warned() -> bool:
                await requests(sender, 5_000)
                return "spans are dropped" in caplog.text

            await eventually(warned)


async def test_requests_wait_for_few_spans_at_a_time(sink: OtlpRecorder) -> None:
    """Each request has as many spans as it can."""
    calls, count = 0, 64

    def make_records() -> list[SpanRecord]:
        nonlocal calls
        calls += 1
        return [record] * MAX_CALLS

    async def has_started() -> bool:
        return calls > 0

    async def is_finished() -> bool:
        return calls == 1 + count

    context = SpanContext(1, 2, is_remote=False)
    record = record_span("a", "CLIENT", context, INVALID_SPAN_CONTEXT, (1, 2), {}, failed=False)
    settings = TelemetrySettings(otlp_endpoint=sink.url, otlp_timeout_s=60.0)
    process = SpanProcess(settings, process_resource())
    try:
        process.put(make_records)
        await eventually(has_started)
        for _ in range(count):
            process.put(make_records)
        assert calls < count / 2
        await eventually(is_finished)
    finally:
        await process.close(60.0)
    assert len(sink.spans) == (1 + count) * MAX_CALLS


async def test_without_a_receiver_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    assert Telemetry(TelemetrySettings(trace_ratio=1.0)).traces is None


@pytest.mark.parametrize("signal", ["metrics", "traces"])
async def test_one_signal_alone_is_exported(
    sink: OtlpRecorder, monkeypatch: pytest.MonkeyPatch, signal: str
) -> None:
    variable = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    monkeypatch.setenv(variable, f"{sink.url}/v1/{signal}")
    sender = Telemetry(TelemetrySettings(trace_ratio=1.0, otlp_timeout_s=60.0))
    sender.start(no_refresh)
    await requests(sender)
    await sender.close()
    assert list(sink.fields) == [f"/v1/{signal}"]


async def test_the_standard_variable_sets_the_receiver(
    sink: OtlpRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "harbour")
    sender = Telemetry(TelemetrySettings(trace_ratio=1.0, otlp_timeout_s=60.0))
    await requests(sender)
    await sender.close()
    assert len(sink.spans) == 2
    assert sink.resource["service.name"] == "harbour"


async def test_spans_are_sent_as_the_standard_variables_configure(
    sink: OtlpRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    async with telemetry(sink.url) as sender:
        await requests(sender)
        await wait_for_spans(sink, 2)
    assert [span.name for span in sink.spans] == ["read articles", f"GET {ROUTE}"]
    fields = sink.fields["/v1/traces"]
    assert fields["x-key"] == "secret"
    assert fields["content-encoding"] == "gzip"
    assert fields["content-type"] == "application/x-protobuf"


async def test_refused_spans_are_retried(sink: OtlpRecorder) -> None:
    sink.refusals = 1
    async with telemetry(sink.url) as sender:
        await requests(sender)
        await wait_for_spans(sink, 2)
    assert sink.refusals == 0


async def test_spans_are_exported_while_the_service_runs(sink: OtlpRecorder) -> None:
    async with telemetry(sink.url) as sender:
        for spans in (2, 4):
            await requests(sender)
            await wait_for_spans(sink, spans)


async def test_a_running_service_traces_which_request_called_which_store(
    redis_config: SystemConfig, postgresql_config: SystemConfig, sink: OtlpRecorder
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    fields = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    async with (
        scratch_systems(redis_config, postgresql_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        Service.on(
            configs,
            url,
            redis_config.url,
            otlp_endpoint=sink.url,
            otlp_timeout_s="60",
            trace_ratio="0",
        ).running() as service,
    ):
        database = unique("db")
        counts = {"fields": {"n": {"type": "integer", "default": 0}}}
        await service.put_schema(database, {"counts": counts})
        with closing(Connection(service.data)) as http, closing(Connection(service.admin)) as admin:
            path = f"/v1/{database}/counts/a"
            assert (await http.request("PUT", path, {}, fields)).status == 201
            assert (await http.request("GET", path)).status == 200
            metrics = (await admin.request("GET", "/metrics")).body.decode()

        async def is_exported() -> bool:
            return bool(sink.spans)

        await eventually(is_exported)  # all of a request at once; the service ends within seconds
        active = 'http_server_active_requests{http_request_method="PUT",url_scheme="http"} 0.0'
        assert active in metrics
        assert f'portolan_placements_total{{database="{database}",' in metrics
        assert "portolan_workers 0.0" in metrics
    *calls, request = sink.spans
    assert calls
    assert request.name == f"PUT {ROUTE}"
    assert {span.trace_id.hex() for span in sink.spans} == {trace}
    assert all(attributes_of(call.attributes)["db.namespace"] == database for call in calls)
    lines = [orjson.loads(line) for line in service.output if line.startswith("{")]
    placed = next(line["event"] for line in lines if line["message"] == "PlacementDecided")
    assert placed["database"] == database
