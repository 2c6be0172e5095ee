"""Traces, built from observations: sampling, content, and secrets that they never reveal."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context, attach
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, get_current_span

from app.telemetry.spans import MakeSpans, SpanRecord, readable_span
from app.telemetry.traces import MAX_CALLS, TracedTransport, Traces, traced
from mediator.base.observation import RequestFinished, StoreCallFinished, SystemRegistered

CALLER = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
READ = StoreCallFinished("cache", "news", "articles", "read", 1, 0.25, "ok")
DONE = RequestFinished("GET", "/v1/{database}/{class}/{id}", 200, 0.5)


class Recorder:
    """Makes traces, and records the spans as exported."""

    def __init__(self, ratio: float) -> None:
        self.spans: list[ReadableSpan] = []
        self.traces = Traces(self._take, ratio)
        self.traces.observe(SystemRegistered("cache", "redis", "Redis 7"))

    def _take(self, make: MakeSpans) -> None:
        """Take spans in the form that the exporting process gets."""
        records = orjson.loads(orjson.dumps(make()))
        self.spans += [readable_span(SpanRecord(**record), Resource({})) for record in records]

    async def request(self, *events: Any, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Serve a request during which its tasks observe events."""

        async def app(*_: Any) -> None:
            for event in events:
                await asyncio.create_task(self._observe(event))

        scope = {"type": "http", "headers": headers}
        await traced(app, self.traces)(scope, _never, _never)

    async def _observe(self, event: Any) -> None:
        self.traces.observe(event)


async def _never(*_: Any) -> Any:
    raise AssertionError


@pytest.fixture(autouse=True)
def _no_current_span() -> None:
    attach(Context())


def parent_of(span: ReadableSpan) -> SpanContext:
    assert span.parent is not None
    return span.parent


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


async def test_a_request_is_a_span_with_its_store_calls_within() -> None:
    recorder = Recorder(1.0)
    failed = StoreCallFinished("cache", "news", "articles", "write", 3, 0.1, "timeout")
    await recorder.request(READ, failed, DONE)
    read, write, request = recorder.spans
    assert request.name == "GET /v1/{database}/{class}/{id}"
    assert request.kind == SpanKind.SERVER
    assert request.parent is None
    assert dict(request.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/v1/{database}/{class}/{id}",
        "http.response.status_code": 200,
        "url.scheme": "http",
    }
    assert {trace_of(span) for span in recorder.spans} == {trace_of(request)}
    assert len({id_of(span) for span in recorder.spans}) == 3
    assert parent_of(read).span_id == parent_of(write).span_id == id_of(request)
    assert not parent_of(read).is_remote
    assert dict(read.attributes or {}) == {
        "db.system.name": "redis",
        "db.namespace": "news",
        "db.collection.name": "articles",
        "db.operation.name": "read",
        "portolan.system": "cache",
    }
    assert read.start_time
    assert read.end_time
    assert request.start_time
    assert request.end_time
    assert read.end_time == read.start_time + 250_000_000
    assert request.start_time <= read.end_time <= request.end_time
    attributes = dict(write.attributes or {})
    assert attributes["error.type"] == "timeout"
    assert attributes["db.operation.batch.size"] == 3
    assert write.status.status_code == StatusCode.ERROR
    assert read.status.status_code == StatusCode.UNSET


async def test_a_request_that_the_service_could_not_answer_failed() -> None:
    recorder = Recorder(1.0)
    await recorder.request(RequestFinished("GET", "/", 499, 0.1))
    await recorder.request(RequestFinished("GET", "/", 500, 0.1))
    codes = [span.status.status_code for span in recorder.spans]
    assert codes == [StatusCode.UNSET, StatusCode.ERROR]


async def test_the_sampling_of_the_caller_precedes_the_ratio() -> None:
    never, always = Recorder(0.0), Recorder(1.0)
    await never.request(READ, DONE, headers=((b"traceparent", CALLER),))
    request = never.spans[-1]
    assert trace_of(request) == TRACE
    assert parent_of(request).span_id == SPAN
    assert parent_of(request).is_remote
    assert not parent_of(never.spans[0]).is_remote
    await always.request(READ, DONE, headers=((b"traceparent", CALLER[:-1] + b"0"),))
    assert always.spans == []


async def test_without_a_caller_the_ratio_decides() -> None:
    half = Recorder(0.5)
    for _ in range(400):
        await half.request(DONE)
    assert 100 < len(half.spans) < 300
    never = Recorder(0.0)
    await never.request(READ, DONE)
    assert never.spans == []


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        b"ff" + CALLER[2:],
        b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        CALLER + b"-more",
        CALLER * 1000,
        b"\xff\x00",
    ],
)
def test_an_invalid_traceparent_is_ignored(value: bytes) -> None:
    Recorder(0.0).traces.start_request([(b"traceparent", value)])
    assert not get_current_span().get_span_context().is_valid


def test_several_traceparents_are_ignored() -> None:
    Recorder(0.0).traces.start_request([(b"traceparent", CALLER), (b"traceparent", CALLER)])
    assert not get_current_span().get_span_context().is_valid


@given(st.binary(max_size=200), st.lists(st.binary(max_size=600), max_size=3))
def test_no_header_field_breaks_a_request(parent: bytes, states: list[bytes]) -> None:
    traces = Recorder(0.0).traces
    for value in (parent, CALLER):
        states_fields = [(b"tracestate", state) for state in states]
        traces.start_request([(b"traceparent", value), *states_fields])


def test_a_state_that_is_ill_formed_is_not_quoted_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    traces = Recorder(0.0).traces
    for state in (b"geheim!=1", b"a=1,a=2", b",".join(b"k%d=v" % n for n in range(40))):
        traces.start_request([(b"traceparent", CALLER), (b"tracestate", state)])
        assert get_current_span().get_span_context().is_valid
    assert not caplog.records


@pytest.mark.parametrize(("length", "is_kept"), [(512, True), (513, False)])
def test_a_long_state_is_not_passed_on(length: int, *, is_kept: bool) -> None:
    """Every span of a request repeats it."""
    state = b",".join(b"k%d=%b" % (n, b"v" * 200) for n in range(2))
    state += b",c=" + b"v" * (length - len(state) - 3)
    first, second = state[:203], state[204:]
    fields = [(b"tracestate", first), (b"tracestate", second + b"v")]
    Recorder(0.0).traces.start_request([(b"traceparent", CALLER), *fields])
    context = get_current_span().get_span_context()
    assert context.trace_id == TRACE
    assert bool(context.trace_state) is is_kept


async def test_a_request_counts_store_calls_beyond_the_limit_of_its_spans() -> None:
    recorder = Recorder(1.0)
    await recorder.request(*[READ] * (MAX_CALLS + 2), DONE)
    assert len(recorder.spans) == MAX_CALLS + 1
    attributes = dict(recorder.spans[-1].attributes or {})
    assert attributes["portolan.store_calls.left_out"] == 2


async def test_work_after_a_request_is_not_in_its_trace() -> None:
    recorder = Recorder(1.0)
    is_over = asyncio.Event()

    async def observe_later() -> None:
        await is_over.wait()
        recorder.traces.observe(READ)

    async def app(*_: Any) -> None:
        tasks.append(asyncio.create_task(observe_later()))
        recorder.traces.observe(DONE)

    tasks: list[asyncio.Task[None]] = []
    await traced(app, recorder.traces)({"type": "http", "headers": ()}, _never, _never)
    is_over.set()
    await asyncio.gather(*tasks)
    assert [span.kind for span in recorder.spans] == [SpanKind.SERVER]


async def test_an_outgoing_request_names_its_span_and_not_its_url() -> None:
    recorder = Recorder(0.0)
    received: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        received.append(request)
        return httpx.Response(404)

    async def app(*_: Any) -> None:
        transport = TracedTransport(recorder.traces, httpx.MockTransport(answer))
        async with httpx.AsyncClient(transport=transport) as http:
            await http.request("PURGE", "http://cache.example:81/v1/news/articles/secret")

    scope = {
        "type": "http",
        "headers": ((b"traceparent", CALLER), (b"tracestate", b"vendor=kept")),
    }
    await traced(app, recorder.traces)(scope, _never, _never)
    (span,) = recorder.spans
    parent = received[0].headers["traceparent"]
    assert parent == f"00-{TRACE:032x}-{id_of(span):016x}-01"
    assert received[0].headers["tracestate"] == "vendor=kept"
    assert span.context is not None
    assert span.context.trace_state.to_header() == "vendor=kept"
    assert not parent_of(span).is_remote
    assert dict(span.attributes or {}) == {
        "http.request.method": "PURGE",
        "server.address": "cache.example",
        "server.port": 81,
        "http.response.status_code": 404,
        "error.type": "404",
    }
    assert "secret" not in span.to_json()


async def test_an_outgoing_request_that_fails_is_recorded_and_fails() -> None:
    recorder = Recorder(1.0)

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    transport = TracedTransport(recorder.traces, httpx.MockTransport(refuse))
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://cache.example/")
    (span,) = recorder.spans
    assert dict(span.attributes or {})["error.type"] == "ConnectError"
    assert span.status.status_code == StatusCode.ERROR
    assert span.parent is None


async def test_untraced_outgoing_requests_carry_nothing() -> None:
    recorder = Recorder(0.0)
    received: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        received.append(request)
        return httpx.Response(200)

    transport = TracedTransport(recorder.traces, httpx.MockTransport(answer))
    async with httpx.AsyncClient(transport=transport) as http:
        await http.get("http://cache.example/")
    assert "traceparent" not in received[0].headers
    assert recorder.spans == []
