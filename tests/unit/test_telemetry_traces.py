"""Traces, made from what is told: who decides, what they show, and what they never do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import Resource

from app.telemetry.context import MOST_CALLS
from app.telemetry.encoding import Encoder
from app.telemetry.outgoing import TracedTransport
from app.telemetry.spans import Ended
from app.telemetry.traced import traced
from app.telemetry.traces import Traces, caller_of
from benchmarks.harness.otlp_sink import attributes_of
from mediator.base.observation import RequestFinished, StoreCallFinished, SystemRegistered

CALLER = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
READ = StoreCallFinished("cache", "news", "articles", "read", 1, 0.25, "ok")
DONE = RequestFinished("GET", "/v1/{database}/{class}/{id}", 200, 0.5)


class Told:
    """A tracer, and the spans that were made of what it handed on."""

    def __init__(self, ratio: float) -> None:
        self.spans: list[Span] = []
        self.traces = Traces(ratio, self._take)
        self.traces.observe(SystemRegistered("cache", "redis", "Redis 7"))
        self._encoder = Encoder(Resource({"service.name": "portolan"}))

    def _take(self, ended: Ended) -> None:
        """Take what was done as the process that sends spans gets it."""
        body = self._encoder.encode(orjson.loads(orjson.dumps([ended.plain()])))
        (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
        self.spans += resource.scope_spans[0].spans

    async def request(self, *events: Any, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Have a request in which events are told, by tasks that it starts as well."""

        async def app(*_: Any) -> None:
            for event in events:
                await asyncio.create_task(self._tell(event))

        scope = {"type": "http", "headers": headers}
        await traced(app, self.traces)(scope, _never, _never)

    async def _tell(self, event: Any) -> None:
        self.traces.observe(event)


async def _never(*_: Any) -> Any:
    raise AssertionError


def is_within_remote(span: Span) -> bool:
    """Return whether a span says that its parent is another service's."""
    return span.flags == 0x300


async def test_a_request_is_a_span_with_its_store_calls_within() -> None:
    told = Told(1.0)
    failed = StoreCallFinished("cache", "news", "articles", "write", 3, 0.1, "timeout")
    await told.request(READ, failed, DONE)
    read, write, request = told.spans
    assert request.name == "GET /v1/{database}/{class}/{id}"
    assert request.kind == Span.SPAN_KIND_SERVER
    assert request.parent_span_id == b""
    assert attributes_of(request.attributes) == {
        "http.request.method": "GET",
        "http.route": "/v1/{database}/{class}/{id}",
        "http.response.status_code": 200,
        "url.scheme": "http",
    }
    assert {span.trace_id for span in told.spans} == {request.trace_id}
    assert len({span.span_id for span in told.spans}) == 3
    assert read.parent_span_id == write.parent_span_id == request.span_id
    assert not any(is_within_remote(span) for span in told.spans)
    assert attributes_of(read.attributes) == {
        "db.system.name": "redis",
        "db.namespace": "news",
        "db.collection.name": "articles",
        "db.operation.name": "read",
        "portolan.system": "cache",
    }
    assert read.end_time_unix_nano == read.start_time_unix_nano + 250_000_000
    assert request.start_time_unix_nano <= read.end_time_unix_nano <= request.end_time_unix_nano
    attributes = attributes_of(write.attributes)
    assert attributes["error.type"] == "timeout"
    assert attributes["db.operation.batch.size"] == 3
    assert write.status.code == Status.STATUS_CODE_ERROR
    assert read.status.code == Status.STATUS_CODE_UNSET


async def test_a_request_that_the_service_could_not_answer_failed() -> None:
    told = Told(1.0)
    await told.request(RequestFinished("GET", "/", 499, 0.1))
    await told.request(RequestFinished("GET", "/", 500, 0.1))
    codes = [span.status.code for span in told.spans]
    assert codes == [Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR]


async def test_the_caller_decides_whatever_the_ratio_is() -> None:
    never, always = Told(0.0), Told(1.0)
    await never.request(READ, DONE, headers=((b"traceparent", CALLER),))
    request = never.spans[-1]
    assert int.from_bytes(request.trace_id) == TRACE
    assert int.from_bytes(request.parent_span_id) == SPAN
    assert is_within_remote(request)
    assert not is_within_remote(never.spans[0])
    await always.request(READ, DONE, headers=((b"traceparent", CALLER[:-1] + b"0"),))
    assert always.spans == []


async def test_without_a_caller_the_ratio_decides() -> None:
    half = Told(0.5)
    for _ in range(400):
        await half.request(DONE)
    assert 100 < len(half.spans) < 300
    none = Told(0.0)
    await none.request(READ, DONE)
    assert none.spans == []


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
def test_what_is_no_traceparent_is_none(value: bytes) -> None:
    assert caller_of([(b"traceparent", value)]) is None


def test_several_traceparents_are_none() -> None:
    assert caller_of([(b"traceparent", CALLER), (b"traceparent", CALLER)]) is None


@given(st.binary(max_size=200), st.lists(st.binary(max_size=600), max_size=3))
def test_no_header_field_breaks_a_request(parent: bytes, states: list[bytes]) -> None:
    caller_of([(b"traceparent", parent), *((b"tracestate", state) for state in states)])
    caller_of([(b"traceparent", CALLER), *((b"tracestate", state) for state in states)])


async def test_a_request_has_so_many_spans_of_store_calls_and_tells_of_the_rest() -> None:
    told = Told(1.0)
    await told.request(*[READ] * (MOST_CALLS + 2), DONE)
    assert len(told.spans) == MOST_CALLS + 1
    attributes = attributes_of(told.spans[-1].attributes)
    assert attributes["portolan.store_calls.left_out"] == 2


async def test_what_goes_on_after_a_request_is_no_part_of_it() -> None:
    told = Told(1.0)
    over = asyncio.Event()

    async def later() -> None:
        await over.wait()
        told.traces.observe(READ)

    async def app(*_: Any) -> None:
        tasks.append(asyncio.create_task(later()))
        told.traces.observe(DONE)

    tasks: list[asyncio.Task[None]] = []
    await traced(app, told.traces)({"type": "http", "headers": ()}, _never, _never)
    over.set()
    await asyncio.gather(*tasks)
    assert [span.kind for span in told.spans] == [Span.SPAN_KIND_SERVER]


async def test_a_call_of_ours_tells_the_callee_and_has_a_span_without_the_url() -> None:
    told = Told(0.0)
    received: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        received.append(request)
        return httpx.Response(404)

    async def app(*_: Any) -> None:
        transport = TracedTransport(told.traces, httpx.MockTransport(answer))
        async with httpx.AsyncClient(transport=transport) as http:
            await http.request("PURGE", "http://cache.example:81/v1/news/articles/secret")

    scope = {
        "type": "http",
        "headers": ((b"traceparent", CALLER), (b"tracestate", b"vendor=kept")),
    }
    await traced(app, told.traces)(scope, _never, _never)
    (span,) = told.spans
    parent = received[0].headers["traceparent"]
    assert parent == f"00-{TRACE:032x}-{span.span_id.hex()}-01"
    assert received[0].headers["tracestate"] == span.trace_state == "vendor=kept"
    assert span.parent_span_id
    assert not is_within_remote(span)
    assert attributes_of(span.attributes) == {
        "http.request.method": "PURGE",
        "server.address": "cache.example",
        "server.port": 81,
        "http.response.status_code": 404,
        "error.type": "404",
    }
    assert b"secret" not in span.SerializeToString()


async def test_a_call_that_fails_is_told_of_and_fails() -> None:
    told = Told(1.0)

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    transport = TracedTransport(told.traces, httpx.MockTransport(refuse))
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://cache.example/")
    (span,) = told.spans
    assert attributes_of(span.attributes)["error.type"] == "ConnectError"
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert span.parent_span_id == b""


async def test_untraced_calls_carry_nothing() -> None:
    told = Told(0.0)
    received: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        received.append(request)
        return httpx.Response(200)

    transport = TracedTransport(told.traces, httpx.MockTransport(answer))
    async with httpx.AsyncClient(transport=transport) as http:
        await http.get("http://cache.example/")
    assert "traceparent" not in received[0].headers
    assert told.spans == []
