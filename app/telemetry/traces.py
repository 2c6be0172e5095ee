"""Traces of requests (W3C Trace Context), made from what is told of them.

A request comes in, and it is decided at once whether it is sampled: as its caller decided, or else
by the ratio. Store calls that are told of within it are noted, and when the request is told to be
finished, its spans are made all at once and handed on. Nothing else knows of tracing: what is told
is told anyway, and which request it belongs to says the context of the task that tells it.

Spans go into a queue of bounded length, from which a thread sends them. If the receiver is slow, or
away, the queue is full and the oldest spans are dropped; no request ever waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import time_ns
from typing import Any, Final, TypeAlias

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.telemetry.context import Trace, under_way
from app.telemetry.stores import UNKNOWN_KIND, error_type
from mediator.observation import RequestFinished, StoreCallFinished, SystemRegistered

__all__ = ["MOST_CALLS", "Traces", "caller_of"]

MOST_CALLS: Final = 128
"""Store calls of a request that get spans of their own; a batch may make thousands."""

_SCOPE: Final = InstrumentationScope("portolan")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
_OK: Final = Status(StatusCode.UNSET)
_FAILED: Final = Status(StatusCode.ERROR)
_W3C: Final = TraceContextTextMapPropagator()
_FIRST_SERVER_ERROR: Final = 500
_HALF: Final = 2**64

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


class Traces:
    """Makes traces; one for each process.

    Args:
        ratio: Part of the requests that are sampled if their callers do not say.
        hand_on: Takes spans that are done, and returns at once.
        resource: Who tells of them.
    """

    def __init__(
        self, ratio: float, hand_on: Callable[[ReadableSpan], None], resource: Resource
    ) -> None:
        self._below = round(ratio * _HALF)
        self._hand_on = hand_on
        self._resource = resource
        self._kinds: dict[str, str] = {}

    def begin(self, headers: Headers) -> Trace | None:
        """Return the trace of a request; None: it has no caller that tells, and is not sampled."""
        return self._trace(caller_of(headers))

    @contextmanager
    def call(self, name: str, attributes: dict[str, str | int]) -> Iterator[dict[str, str]]:
        """Trace a call of ours, as part of what is under way, or else for itself.

        Args:
            name: What the span is called.
            attributes: Of the span; the block may add some, ``error.type`` if the call fails.

        Yields:
            The header fields that tell the callee.
        """
        around = under_way.get()
        trace = self._trace(around.span if around and not around.over else None)
        if trace is None:
            yield {}
            return
        with trace:
            yield _fields_of(trace.span)
        if trace.span.trace_flags.sampled:
            failed = "error.type" in attributes
            self._hand_on(self._span(trace, name, SpanKind.CLIENT, attributes, failed=failed))

    def _trace(self, parent: SpanContext | None) -> Trace | None:
        if parent is not None:
            return Trace(_span_within(parent), parent, time_ns())
        trace_id = random.getrandbits(128)
        if trace_id % _HALF >= self._below or not trace_id:
            return None
        span = SpanContext(trace_id, _span_id(), is_remote=False, trace_flags=_SAMPLED)
        return Trace(span, None, time_ns())

    def observe(self, told: Any) -> None:
        """Take up what was told."""
        if isinstance(told, SystemRegistered):
            self._kinds[told.system] = told.kind
            return
        trace = under_way.get()
        if trace is None or trace.over or not trace.span.trace_flags.sampled:
            return
        match told:
            case StoreCallFinished():
                _note(trace, told)
            case RequestFinished():
                self._finish(trace, told)

    def _finish(self, trace: Trace, told: RequestFinished) -> None:
        trace.over = True
        for call, ended_ns in trace.calls:
            self._hand_on(self._call(trace.span, call, ended_ns))
        attributes: dict[str, str | int] = {
            "http.request.method": told.method,
            "http.route": told.route,
            "http.response.status_code": told.status,
            "url.scheme": told.scheme,
        }
        if trace.left_out:
            attributes["portolan.store_calls.left_out"] = trace.left_out
        failed = told.status >= _FIRST_SERVER_ERROR
        name = f"{told.method} {told.route}"
        self._hand_on(self._span(trace, name, SpanKind.SERVER, attributes, failed=failed))

    def _span(
        self,
        trace: Trace,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, str | int],
        *,
        failed: bool,
    ) -> ReadableSpan:
        # The SDK's tracer would take ten times as long, on the path of the request: what it does
        # besides, keeping the span open to changes, is not needed of one that is done.
        return ReadableSpan(
            name,
            trace.span,
            trace.parent,
            self._resource,
            attributes,
            kind=kind,
            status=_FAILED if failed else _OK,
            start_time=trace.began_ns,
            end_time=time_ns(),
            instrumentation_scope=_SCOPE,
        )

    def _call(self, of: SpanContext, told: StoreCallFinished, ended_ns: int) -> ReadableSpan:
        attributes: dict[str, str | int] = {
            "db.system.name": self._kinds.get(told.system, UNKNOWN_KIND),
            "db.namespace": told.database,
            "db.collection.name": told.class_name,
            "db.operation.name": told.operation,
            "portolan.system": told.system,
        }
        if told.count > 1:
            attributes["db.operation.batch.size"] = told.count
        if told.outcome != "ok":
            attributes["error.type"] = error_type(told)
        return ReadableSpan(
            f"{told.operation} {told.class_name}",
            _span_within(of),
            of,
            self._resource,
            attributes,
            kind=SpanKind.CLIENT,
            status=_OK if told.outcome == "ok" else _FAILED,
            start_time=ended_ns - round(told.seconds * 1e9),
            end_time=ended_ns,
            instrumentation_scope=_SCOPE,
        )


def _fields_of(span: SpanContext) -> dict[str, str]:
    fields = {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"}
    if span.trace_state:
        fields["tracestate"] = span.trace_state.to_header()
    return fields


def caller_of(headers: Headers) -> SpanContext | None:
    """Return the span that the caller told of; None if there is none, or it is not valid.

    Several fields `traceparent` are as good as none (W3C Trace Context, section 3.2).
    """
    parents = [value for name, value in headers if name == b"traceparent"]
    if len(parents) != 1:
        return None
    states = [value for name, value in headers if name == b"tracestate"]
    told = {
        "traceparent": parents[0].decode("latin-1"),
        "tracestate": b",".join(states).decode("latin-1"),
    }
    span = get_current_span(_W3C.extract(told)).get_span_context()
    return span if span.is_valid else None


def _note(trace: Trace, told: StoreCallFinished) -> None:
    if len(trace.calls) < MOST_CALLS:
        trace.calls.append((told, time_ns()))
    else:
        trace.left_out += 1


def _span_within(parent: SpanContext) -> SpanContext:
    return SpanContext(
        parent.trace_id,
        _span_id(),
        is_remote=False,
        trace_flags=_SAMPLED if parent.trace_flags.sampled else _UNSAMPLED,
        trace_state=parent.trace_state,
    )


def _span_id() -> int:
    return random.getrandbits(64) or 1
