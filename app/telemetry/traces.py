"""Traces of requests (W3C Trace Context), made from what is told of them.

A request comes in, and it is decided at once whether it is sampled: as its caller decided, or else
by the ratio. Store calls that are told of within it are noted, and when the request is told to be
finished, its spans are made all at once and handed on. Nothing else knows of tracing: what is told
is told anyway, and which request it belongs to says the context of the task that tells it.

Spans are handed to another process, which sends them (`sending.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import time_ns
from typing import Any, Final, TypeAlias

from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.telemetry.context import Trace, under_way
from app.telemetry.spans import Span
from app.telemetry.stores import UNKNOWN_KIND, error_type
from mediator.observation import RequestFinished, StoreCallFinished, SystemRegistered

__all__ = ["MOST_CALLS", "Traces", "caller_of"]

MOST_CALLS: Final = 128
"""Store calls of a request that get spans of their own; a batch may make thousands."""

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
_SERVER: Final = SpanKind.SERVER.value
_CLIENT: Final = SpanKind.CLIENT.value
_W3C: Final = TraceContextTextMapPropagator()
_FIRST_SERVER_ERROR: Final = 500
_HALF: Final = 2**64

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


class Traces:
    """Makes traces; one for each process.

    Args:
        ratio: Part of the requests that are sampled if their callers do not say.
        hand_on: Takes spans that are done, and returns at once.
    """

    def __init__(self, ratio: float, hand_on: Callable[[Span], None]) -> None:
        self._below = round(ratio * _HALF)
        self._hand_on = hand_on
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
            self._hand_on(_span(trace, name, _CLIENT, attributes, failed=failed))

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
        self._hand_on(_span(trace, name, _SERVER, attributes, failed=failed))

    def _call(self, of: SpanContext, told: StoreCallFinished, ended_ns: int) -> Span:
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
        return Span(
            f"{told.operation} {told.class_name}",
            _CLIENT,
            f"{of.trace_id:032x}",
            _span_id(),
            _state_of(of),
            of.span_id,
            False,
            ended_ns - round(told.seconds * 1e9),
            ended_ns,
            attributes,
            told.outcome != "ok",
        )


def _span(
    trace: Trace, name: str, kind: int, attributes: dict[str, str | int], *, failed: bool
) -> Span:
    span, parent = trace.span, trace.parent
    return Span(
        name,
        kind,
        f"{span.trace_id:032x}",
        span.span_id,
        _state_of(span),
        0 if parent is None else parent.span_id,
        parent is not None and parent.is_remote,
        trace.began_ns,
        time_ns(),
        attributes,
        failed,
    )


def _state_of(span: SpanContext) -> str:
    return span.trace_state.to_header() if span.trace_state else ""


def _fields_of(span: SpanContext) -> dict[str, str]:
    fields = {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"}
    if state := _state_of(span):
        fields["tracestate"] = state
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
