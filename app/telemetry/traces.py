"""Traces of requests (W3C Trace Context), made from what is told of them.

A request comes in, and it is decided at once whether it is sampled: as its caller decided, or else
by the ratio. What is told of store calls within it is kept, and when the request is told to be
finished, all of it is handed on at once. Nothing else knows of tracing: what is told is told
anyway, and which request it belongs to says the context of the task that tells it.

Here is done only what has to be, for it comes on top of every request. Many of them are put into
words at a time (`sending.py`), and another process makes spans of it (`encoding.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import getrandbits
from time import time_ns
from typing import Any, Final, TypeAlias

from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.telemetry.context import Trace, under_way
from app.telemetry.spans import Ended, Outgoing
from app.telemetry.stores import UNKNOWN_KIND
from mediator.base.observation import RequestFinished, StoreCallFinished, SystemRegistered

__all__ = ["Traces", "caller_of"]

_W3C: Final = TraceContextTextMapPropagator()
_HALF: Final = 2**64

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class _Called:
    """A call of ours that was answered, or failed."""

    trace: Trace
    name: str
    attributes: dict[str, str | int]

    def plain(self) -> Outgoing:
        """Return it as plain values."""
        return self.trace.place(), self.name, self.attributes, "error.type" in self.attributes


class Traces:
    """Makes traces; one for each process.

    Args:
        ratio: Part of the requests that are sampled if their callers do not say.
        hand_on: Takes what is done, and returns at once.
    """

    def __init__(self, ratio: float, hand_on: Callable[[Ended], None]) -> None:
        self._below = round(ratio * _HALF)
        self._hand_on = hand_on
        self._kinds: dict[str, str] = {}

    def begin(self, headers: Headers) -> Trace | None:
        """Return the trace of a request; None: it has no caller that tells, and is not sampled."""
        for name, _ in headers:
            if name == b"traceparent":
                caller = caller_of(headers)
                return _within_caller(caller) if caller is not None else self._sample()
        return self._sample()

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
        trace = _within(around) if around and not around.ended_ns else self._sample()
        if trace is None:
            yield {}
            return
        with trace:
            yield _fields_of(trace)
        if trace.sampled:
            self._hand_on(_Called(trace, name, attributes))

    def _sample(self) -> Trace | None:
        """Begin a trace of its own, for some."""
        low = getrandbits(64)
        if low >= self._below:
            return None
        high = getrandbits(64) or 1  # an id of zeros is none
        return Trace(high, low, _span_id(), True, "", 0, False, time_ns())

    def observe(self, told: Any) -> None:
        """Take up what was told."""
        kind = told.__class__
        if kind is StoreCallFinished:
            trace = under_way.get()
            if trace is not None and trace.sampled and not trace.ended_ns:
                trace.note(self._kinds.get(told.system, UNKNOWN_KIND), told)
        elif kind is RequestFinished:
            trace = under_way.get()
            if trace is not None and trace.sampled and not trace.ended_ns:
                trace.end(told)
                self._hand_on(trace)
        elif kind is SystemRegistered:
            self._kinds[told.system] = told.kind


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


def _within_caller(caller: SpanContext) -> Trace:
    high, low = divmod(caller.trace_id, _HALF)
    state = caller.trace_state.to_header() if caller.trace_state else ""
    sampled = caller.trace_flags.sampled
    return Trace(high, low, _span_id(), sampled, state, caller.span_id, True, time_ns())


def _within(around: Trace) -> Trace:
    high, low, state = around.high, around.low, around.state
    return Trace(high, low, _span_id(), around.sampled, state, around.span_id, False, time_ns())


def _fields_of(trace: Trace) -> dict[str, str]:
    flags = "01" if trace.sampled else "00"
    fields = {"traceparent": f"00-{trace.trace_hex}-{trace.span_hex}-{flags}"}
    if trace.state:
        fields["tracestate"] = trace.state
    return fields


def _span_id() -> int:
    return getrandbits(64) or 1
