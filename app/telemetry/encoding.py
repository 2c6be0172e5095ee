"""Spans in the form in which they are sent (OTLP, protobuf).

All requests to a route that ended alike have the same name, attributes and status. So the library
encodes those once, and a span is its ids and times, which have a place of their own, with a copy of
that after them: a twentieth of the time that the library takes for each. In protobuf members of a
message stand one after the other, each after its number and, if it may be short or long, its length
(Protocol Buffers, "Encoding").
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from random import getrandbits
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from app.telemetry.spans import Done, Location, Outgoing, Request

__all__ = ["Encoder"]

_MOST_KEPT: Final = 4_096
"""Forms of spans; each takes some two hundred bytes."""

_FIRST_SERVER_ERROR: Final = 500
_SCOPE: Final = InstrumentationScope("portolan")
_NOBODY: Final = Resource({})
_OWN: Final = SpanContext(1, 1, is_remote=False)
_OF_ITS_OWN: Final = ("trace_id", "span_id", "parent_span_id")
_LENGTH_OF_OUTGOING: Final = 4
_SEVEN_BITS: Final = 1 << 7


def _varint(number: int) -> bytes:
    """Encode a number, seven bits in each byte, the lowest first."""
    if number < _SEVEN_BITS:
        return bytes([number])
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


@lru_cache(_MOST_KEPT)
def _before(number: int, length: int | None = None) -> bytes:
    """Return what stands before a member: one of that length, or else one of eight bytes."""
    return (
        bytes([number << 3 | 1]) if length is None else bytes([number << 3 | 2]) + _varint(length)
    )


def _member(number: int, value: bytes) -> bytes:
    return _before(number, len(value)) + value


_TRACE_ID: Final = _before(Span.TRACE_ID_FIELD_NUMBER, 16)
_SPAN_ID: Final = _before(Span.SPAN_ID_FIELD_NUMBER, 8)
_PARENT_ID: Final = _before(Span.PARENT_SPAN_ID_FIELD_NUMBER, 8)
_BEGAN: Final = _before(Span.START_TIME_UNIX_NANO_FIELD_NUMBER)
_ENDED: Final = _before(Span.END_TIME_UNIX_NANO_FIELD_NUMBER)
_ids: Final = struct.Struct(">2sQQ2sQ").pack
_parent: Final = struct.Struct(">2sQ").pack
_times: Final = struct.Struct("<cQcQ").pack


class Encoder:
    """Encodes what was done as the spans of one resource.

    Args:
        resource: Who tells of it.
    """

    def __init__(self, resource: Resource) -> None:
        nothing = encode_spans([_readable("", SpanKind.INTERNAL, {}, resource=resource)])
        (around,) = nothing.resource_spans
        (scope,) = around.scope_spans
        scope.ClearField("spans")
        self._scope = scope.SerializeToString()
        around.ClearField("scope_spans")
        self._resource = around.SerializeToString()

    def encode(self, done: Iterable[Done]) -> bytes:
        """Return the body of the request that tells of `done`."""
        spans: list[bytes] = [self._scope]
        for each in done:
            if len(each) == _LENGTH_OF_OUTGOING:
                spans.append(_outgoing(each))
            else:
                spans += _request(each)
        scope = _member(ResourceSpans.SCOPE_SPANS_FIELD_NUMBER, b"".join(spans))
        return _member(
            ExportTraceServiceRequest.RESOURCE_SPANS_FIELD_NUMBER, self._resource + scope
        )


def _request(request: Request) -> Iterator[bytes]:
    place, what, calls = request
    high, low, state, span_id, *_ = place
    for ended_ns, seconds, *call in calls:
        began_ns = ended_ns - round(seconds * 1e9)
        yield _span(
            (high, low, state, getrandbits(64) or 1, span_id, False, began_ns, ended_ns),
            _of_call(*call),
        )
    yield _span(place, _of_request(place[5], *what))


def _outgoing(outgoing: Outgoing) -> bytes:
    place, name, attributes, failed = outgoing
    return _span(place, _of_outgoing(place[5], name, tuple(attributes.items()), failed))


def _span(place: Location, form: bytes) -> bytes:
    high, low, state, span_id, parent_id, _, began_ns, ended_ns = place
    span = b"".join(
        (
            _ids(_TRACE_ID, high, low, _SPAN_ID, span_id),
            _member(Span.TRACE_STATE_FIELD_NUMBER, state.encode()) if state else b"",
            _parent(_PARENT_ID, parent_id) if parent_id else b"",
            _times(_BEGAN, began_ns, _ENDED, ended_ns),
            form,
        )
    )
    return _member(ScopeSpans.SPANS_FIELD_NUMBER, span)


@lru_cache(_MOST_KEPT)
def _of_request(
    parent_is_remote: bool, method: str, route: str, status: int, scheme: str, left_out: int
) -> bytes:
    attributes: dict[str, str | int] = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
        "url.scheme": scheme,
    }
    if left_out:
        attributes["portolan.store_calls.left_out"] = left_out
    failed = status >= _FIRST_SERVER_ERROR
    return _form(f"{method} {route}", SpanKind.SERVER, attributes, failed, parent_is_remote)


@lru_cache(_MOST_KEPT)
def _of_call(
    kind: str, system: str, database: str, class_name: str, operation: str, count: int, error: str
) -> bytes:
    attributes: dict[str, str | int] = {
        "db.system.name": kind,
        "db.namespace": database,
        "db.collection.name": class_name,
        "db.operation.name": operation,
        "portolan.system": system,
    }
    if count > 1:
        attributes["db.operation.batch.size"] = count
    if error:
        attributes["error.type"] = error
    return _form(f"{operation} {class_name}", SpanKind.CLIENT, attributes, bool(error), False)


@lru_cache(_MOST_KEPT)
def _of_outgoing(
    parent_is_remote: bool, name: str, attributes: tuple[tuple[str, Any], ...], failed: bool
) -> bytes:
    return _form(name, SpanKind.CLIENT, dict(attributes), failed, parent_is_remote)


def _form(
    name: str,
    kind: SpanKind,
    attributes: dict[str, str | int],
    failed: bool,
    parent_is_remote: bool,
) -> bytes:
    """Encode what spans have in common, by the library."""
    parent = SpanContext(1, 1, is_remote=parent_is_remote)
    told = _readable(name, kind, attributes, failed=failed, parent=parent)
    (span,) = encode_spans([told]).resource_spans[0].scope_spans[0].spans
    for field in _OF_ITS_OWN:
        span.ClearField(field)
    return bytes(span.SerializeToString())


def _readable(
    name: str,
    kind: SpanKind,
    attributes: dict[str, str | int],
    *,
    failed: bool = False,
    parent: SpanContext | None = None,
    resource: Resource = _NOBODY,
) -> ReadableSpan:
    return ReadableSpan(
        name,
        _OWN,
        parent,
        resource,
        attributes,
        kind=kind,
        status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
        instrumentation_scope=_SCOPE,
    )
