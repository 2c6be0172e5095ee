"""A span as plain values, which the service sends to the process that exports spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    format_span_id,
    format_trace_id,
)

__all__ = ["MakeSpans", "SpanRecord", "readable_span", "record_span"]

_SCOPE = InstrumentationScope("portolan")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A finished span; ids are hexadecimal, as JSON has no 128-bit numbers."""

    name: str
    kind: Literal["SERVER", "CLIENT"]
    trace_id: str
    span_id: str
    trace_state: str
    parent_id: str | None
    parent_is_remote: bool
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int]
    failed: bool


MakeSpans: TypeAlias = Callable[[], list[SpanRecord]]
"""Makes the spans of a finished request."""


def record_span(
    name: str,
    kind: Literal["SERVER", "CLIENT"],
    context: SpanContext,
    parent: SpanContext,
    times_ns: tuple[int, int],
    attributes: Mapping[str, str | int],
    *,
    failed: bool,
) -> SpanRecord:
    """Return a record of a span; an invalid parent means none."""
    return SpanRecord(
        name,
        kind,
        format_trace_id(context.trace_id),
        format_span_id(context.span_id),
        context.trace_state.to_header(),
        format_span_id(parent.span_id) if parent.is_valid else None,
        parent.is_remote,
        *times_ns,
        attributes,
        failed,
    )


def readable_span(record: SpanRecord, resource: Resource) -> ReadableSpan:
    trace_id = int(record.trace_id, 16)
    state = TraceState.from_header([record.trace_state])

    def context(span_id: str, *, is_remote: bool) -> SpanContext:
        return SpanContext(trace_id, int(span_id, 16), is_remote, _SAMPLED, state)

    return ReadableSpan(
        record.name,
        context(record.span_id, is_remote=False),
        (record.parent_id and context(record.parent_id, is_remote=record.parent_is_remote)) or None,
        resource,
        record.attributes,
        kind=SpanKind[record.kind],
        status=Status(StatusCode.ERROR if record.failed else StatusCode.UNSET),
        start_time=record.start_ns,
        end_time=record.end_ns,
        instrumentation_scope=_SCOPE,
    )
