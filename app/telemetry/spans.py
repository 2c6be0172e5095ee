"""Spans that are done: as plain values for another process, and as exporters take them."""

from __future__ import annotations

from typing import Final, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

__all__ = ["Span", "readable"]

_SCOPE: Final = InstrumentationScope("portolan")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_OK: Final = Status(StatusCode.UNSET)
_FAILED: Final = Status(StatusCode.ERROR)


class Span(NamedTuple):
    """A span that is done.

    Attributes:
        name: What it is called.
        kind: The value of its `SpanKind`.
        trace_id: In hexadecimal digits: of its 128 bits JSON would lose some.
        span_id: Its own id.
        trace_state: As the caller told it (W3C Trace Context); empty: not at all.
        parent_id: Id of the span that it is within; 0: of none.
        parent_is_remote: Whether that is the caller's.
        began_ns: When it began, since the epoch (nanoseconds).
        ended_ns: When it ended.
        attributes: Of the semantic conventions, and ours.
        failed: Whether it failed.
    """

    name: str
    kind: int
    trace_id: str
    span_id: int
    trace_state: str
    parent_id: int
    parent_is_remote: bool
    began_ns: int
    ended_ns: int
    attributes: dict[str, str | int]
    failed: bool


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return a span as exporters take it, told by `resource`."""
    state = TraceState.from_header([span.trace_state])
    return ReadableSpan(
        span.name,
        _context(span, span.span_id, state, is_remote=False),
        _context(span, span.parent_id, state, is_remote=span.parent_is_remote)
        if span.parent_id
        else None,
        resource,
        span.attributes,
        kind=SpanKind(span.kind),
        status=_FAILED if span.failed else _OK,
        start_time=span.began_ns,
        end_time=span.ended_ns,
        instrumentation_scope=_SCOPE,
    )


def _context(span: Span, id_: int, state: TraceState, *, is_remote: bool) -> SpanContext:
    return SpanContext(int(span.trace_id, 16), id_, is_remote, _SAMPLED, state)
