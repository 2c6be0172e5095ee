"""Spans of requests, of store calls within them, and of requests to caches (W3C Trace Context).

Only this module knows of tracing: spans are built from the same observations as metrics, and the
context of the observing task identifies their request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import random
from time import time_ns
from typing import Any, Final, TypeAlias

import httpx
from opentelemetry.context import Context, attach, create_key, detach, get_value, set_value
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.http.message import Receive, Scope, Send
from app.telemetry.spans import MakeSpans, SpanRecord, record_span
from app.telemetry.stores import UNKNOWN_KIND, error_type
from mediator.base.observation import RequestFinished, StoreCallFinished, SystemRegistered

__all__ = ["MAX_CALLS", "W3C", "Application", "TracedTransport", "Traces", "traced"]

W3C: Final = TraceContextTextMapPropagator()
# It warns of every ill-formed `tracestate`, and quotes it: clients could write to the log.
logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)

MAX_CALLS: Final = 128
"""Maximum store calls of a request that get spans; a batch can make thousands."""

_MAX_STATE_LENGTH: Final = 512
"""Maximum characters of a `tracestate`; every span of a request repeats it (section 3.3.1.5)."""

_FIRST_SERVER_ERROR: Final = 500
_IDS: Final = RandomIdGenerator()
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NO_TRACE: Final = Context()
_REQUEST: Final = create_key("portolan-request")
"""The key of the `_Request` in its context."""

HeaderFields: TypeAlias = Sequence[tuple[bytes, bytes]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class _HeaderGetter(Getter[HeaderFields]):
    def get(self, carrier: HeaderFields, key: str) -> list[str] | None:
        """Return the values of a field; several `traceparent` count as none (section 3.2).

        So does a `tracestate` longer than participants must propagate.
        """
        name = key.encode()
        values = [value.decode("latin-1") for field, value in carrier if field == name]
        if key == "traceparent":
            is_ignored = len(values) > 1
        else:
            is_ignored = sum(map(len, values)) > _MAX_STATE_LENGTH
        return None if is_ignored else values or None

    def keys(self, carrier: HeaderFields) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier]


_GETTER: Final = _HeaderGetter()


@dataclass(slots=True)
class _Request:
    """A sampled request."""

    context: SpanContext
    parent: SpanContext
    start_ns: int = field(default_factory=time_ns)
    end_ns: int = 0
    event: RequestFinished | None = None
    calls: list[tuple[int, str, StoreCallFinished]] = field(default_factory=list)
    left_out: int = 0

    def add_call(self, kind: str, event: StoreCallFinished) -> None:
        """Record a store call, which ends now, on a system of some kind."""
        if len(self.calls) < MAX_CALLS:
            self.calls.append((time_ns(), kind, event))
        else:
            self.left_out += 1

    def spans(self) -> list[SpanRecord]:
        event = self.event
        assert event is not None
        attributes: dict[str, str | int] = {
            "http.request.method": event.method,
            "http.route": event.route,
            "http.response.status_code": event.status,
            "url.scheme": event.scheme,
        }
        if self.left_out:
            attributes["portolan.store_calls.left_out"] = self.left_out
        return [
            *(_call_span(self.context, *call) for call in self.calls),
            record_span(
                f"{event.method} {event.route}",
                "SERVER",
                self.context,
                self.parent,
                (self.start_ns, self.end_ns),
                attributes,
                failed=event.status >= _FIRST_SERVER_ERROR,
            ),
        ]


def _call_span(
    request: SpanContext, end_ns: int, kind: str, event: StoreCallFinished
) -> SpanRecord:
    attributes: dict[str, str | int] = {
        "db.system.name": kind,
        "db.namespace": event.database,
        "db.collection.name": event.class_name,
        "db.operation.name": event.operation,
        "portolan.system": event.system,
    }
    if event.count > 1:
        attributes["db.operation.batch.size"] = event.count
    error = error_type(event)
    if error:
        attributes["error.type"] = error
    return record_span(
        f"{event.operation} {event.class_name}",
        "CLIENT",
        _child_of(request),
        request,
        (end_ns - round(event.seconds * 1e9), end_ns),
        attributes,
        failed=bool(error),
    )


def _child_of(parent: SpanContext) -> SpanContext:
    """Return a context in the trace of its parent, or in a new sampled one if that is invalid."""
    is_valid = parent.is_valid
    return SpanContext(
        parent.trace_id if is_valid else _IDS.generate_trace_id(),
        _IDS.generate_span_id(),
        is_remote=False,
        trace_flags=parent.trace_flags if is_valid else _SAMPLED,
        trace_state=parent.trace_state,
    )


@dataclass(eq=False)
class Traces:
    """Samples requests, and makes their spans.

    Attributes:
        _export: Takes a function that makes spans, without waiting.
        _ratio: Share of requests that are sampled, of those whose callers do not decide.
    """

    _export: Callable[[MakeSpans], None]
    _ratio: float
    _kinds: dict[str, str] = field(default_factory=dict, init=False)

    def start_request(self, headers: HeaderFields) -> None:
        """Attach the context of a request to this task, until the next request."""
        attach(self._request_context(headers))

    def _request_context(self, headers: HeaderFields) -> Context:
        caller = INVALID_SPAN_CONTEXT
        if b"traceparent" in dict(headers):
            caller = get_current_span(W3C.extract(headers, _NO_TRACE, _GETTER)).get_span_context()
        # Most requests return here, before anything is built for them.
        if not caller.is_valid and not self._is_sampled():
            return _NO_TRACE
        span_context = _child_of(caller)
        context = set_span_in_context(NonRecordingSpan(span_context), _NO_TRACE)
        if not span_context.trace_flags.sampled:
            return context
        return set_value(_REQUEST, _Request(span_context, caller), context)

    @contextmanager
    def outgoing(self, name: str, attributes: dict[str, str | int]) -> Iterator[None]:
        """Trace an outgoing request, as part of the current request or on its own.

        Args:
            name: The name of the span.
            attributes: Attributes of the span; the block can add some, ``error.type`` if it fails.
        """
        parent, request = get_current_span().get_span_context(), get_value(_REQUEST)
        # A task can outlive the request that started it.
        if isinstance(request, _Request) and request.end_ns:
            parent = INVALID_SPAN_CONTEXT
        if not parent.is_valid and not self._is_sampled():
            yield
            return
        span_context, start_ns = _child_of(parent), time_ns()
        token = attach(set_span_in_context(NonRecordingSpan(span_context)))
        try:
            yield
        finally:
            detach(token)
            if span_context.trace_flags.sampled:
                times_ns, failed = (start_ns, time_ns()), "error.type" in attributes
                span = record_span(
                    name, "CLIENT", span_context, parent, times_ns, attributes, failed=failed
                )
                self._export(lambda: [span])

    def _is_sampled(self) -> bool:
        return random() < self._ratio  # noqa: S311 - sampling needs no secret

    def observe(self, event: Any) -> None:
        """Record events within a sampled request, and export its spans at its end."""
        kind = event.__class__
        if kind is SystemRegistered:
            self._kinds[event.system] = event.kind
        elif kind is StoreCallFinished or kind is RequestFinished:
            request = get_value(_REQUEST)
            if not isinstance(request, _Request) or request.end_ns:
                return
            if kind is StoreCallFinished:
                request.add_call(self._kinds.get(event.system, UNKNOWN_KIND), event)
            else:
                request.event, request.end_ns = event, time_ns()
                self._export(request.spans)


def traced(app: Application, traces: Traces | None) -> Application:
    """Return an application whose requests are traced; without `traces`, `app` itself.

    Each request has its own task, or follows another in the same task, so its context is attached
    and never detached. It ends with the observation that the request has finished.
    """
    if traces is None:
        return app

    # Not a coroutine, which would be resumed at every wait.
    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            traces.start_request(scope["headers"])
        return app(scope, receive, send)

    return answer


class TracedTransport(httpx.AsyncBaseTransport):
    """Sends requests, and makes a span for each.

    The span has no URL: it would show the ids of objects.

    Args:
        inner: The transport that sends; by default a new one.
    """

    def __init__(self, traces: Traces, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._traces = traces
        self._inner = inner or httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "server.address": request.url.host,
        }
        if request.url.port is not None:
            attributes["server.port"] = request.url.port
        with self._traces.outgoing(request.method, attributes):
            W3C.inject(request.headers)
            try:
                response = await self._inner.handle_async_request(request)
            except httpx.TransportError as error:
                attributes["error.type"] = type(error).__name__
                raise
            attributes["http.response.status_code"] = response.status_code
            if response.is_error:
                attributes["error.type"] = str(response.status_code)
            return response

    async def aclose(self) -> None:
        await self._inner.aclose()
