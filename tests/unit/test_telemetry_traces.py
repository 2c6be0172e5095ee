"""Traces, made from what is told: who decides, what they show, and what they never do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from app.telemetry.outgoing import TracedTransport
from app.telemetry.spans import Span, readable
from app.telemetry.traced import traced
from app.telemetry.traces import MOST_CALLS, Traces, caller_of
from mediator.observation import RequestFinished, StoreCallFinished, SystemRegistered

CALLER = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
READ = StoreCallFinished("cache", "news", "articles", "read", 1, 0.25, "ok")
DONE = RequestFinished("GET", "/v1/{database}/{class}/{id}", 200, 0.5)


class Told:
    """A tracer, and the spans that it handed on."""

    def __init__(self, ratio: float) -> None:
        self.spans: list[ReadableSpan] = []
        self.traces = Traces(ratio, self._take)
        self.traces.observe(SystemRegistered("cache", "redis", "Redis 7"))

    def _take(self, span: Span) -> None:
        """Take a span as the process that sends it gets it."""
        handed = Span(*orjson.loads(orjson.dumps(tuple(span))))
        self.spans.append(readable(handed, Resource({"service.name": "portolan"})))

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


def context_of(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


async def test_a_request_is_a_span_with_its_store_calls_within() -> None:
    told = Told(1.0)
    failed = StoreCallFinished("cache", "news", "articles", "write", 3, 0.1, "timeout")
    await told.request(READ, failed, DONE)
    read, write, request = told.spans
    assert request.name == "GET /v1/{database}/{class}/{id}"
    assert request.kind is SpanKind.SERVER
    assert request.parent is None
    assert request.attributes == {
        "http.request.method": "GET",
        "http.route": "/v1/{database}/{class}/{id}",
        "http.response.status_code": 200,
        "url.scheme": "http",
    }
    assert {context_of(span).trace_id for span in told.spans} == {context_of(request).trace_id}
    assert read.parent == write.parent == request.context
    assert read.attributes == {
        "db.system.name": "redis",
        "db.namespace": "news",
        "db.collection.name": "articles",
        "db.operation.name": "read",
        "portolan.system": "cache",
    }
    assert read.start_time is not None
    assert read.end_time == read.start_time + 250_000_000
    assert write.attributes is not None
    assert write.attributes["error.type"] == "timeout"
    assert write.attributes["db.operation.batch.size"] == 3
    assert write.status.status_code is StatusCode.ERROR


async def test_the_caller_decides_whatever_the_ratio_is() -> None:
    never, always = Told(0.0), Told(1.0)
    await never.request(READ, DONE, headers=((b"traceparent", CALLER),))
    request = never.spans[-1]
    assert context_of(request).trace_id == TRACE
    assert request.parent is not None
    assert request.parent.span_id == SPAN
    assert request.parent.is_remote
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
    assert told.spans[-1].attributes is not None
    assert told.spans[-1].attributes["portolan.store_calls.left_out"] == 2


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
    assert [span.kind for span in told.spans] == [SpanKind.SERVER]


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
    assert parent == f"00-{TRACE:032x}-{context_of(span).span_id:016x}-01"
    assert received[0].headers["tracestate"] == "vendor=kept"
    assert span.attributes == {
        "http.request.method": "PURGE",
        "server.address": "cache.example",
        "server.port": 81,
        "http.response.status_code": 404,
        "error.type": "404",
    }
    assert "secret" not in span.to_json()


async def test_a_call_that_fails_is_told_of_and_fails() -> None:
    told = Told(1.0)

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    transport = TracedTransport(told.traces, httpx.MockTransport(refuse))
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://cache.example/")
    assert told.spans[0].attributes is not None
    assert told.spans[0].attributes["error.type"] == "ConnectError"


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
