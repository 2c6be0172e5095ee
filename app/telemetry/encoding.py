"""Spans in the form in which they are sent (OTLP, protobuf).

All requests to a route that ended alike have the same name, attributes and status. So the library
encodes those once, and a span is a copy of that with ids and times of its own: a tenth of the time
that the library takes for each. What a span looks like on the wire is decided by the library alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from random import getrandbits
from typing import Any, Final, TypeAlias

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from app.telemetry.spans import Call, Done, Outgoing, Place, Request

__all__ = ["Encoder"]

_MOST_KEPT: Final = 4_096
"""Forms of spans; each takes some two hundred bytes."""

_FIRST_SERVER_ERROR: Final = 500
_SCOPE: Final = InstrumentationScope("portolan")
_NOBODY: Final = Resource({})
_OWN: Final = SpanContext(1, 1, is_remote=False)
_OF_ITS_OWN: Final = ("trace_id", "span_id", "parent_span_id")
_trace_id: Final = struct.Struct(">QQ").pack
_span_id: Final = struct.Struct(">Q").pack

_Add: TypeAlias = Callable[..., Span]


class Encoder:
    """Encodes what was done as the spans of one resource.

    Args:
        resource: Who tells of it.
    """

    def __init__(self, resource: Resource) -> None:
        nothing = encode_spans([_readable("", SpanKind.INTERNAL, {}, resource=resource)])
        nothing.resource_spans[0].scope_spans[0].ClearField("spans")
        self._nothing = nothing.SerializeToString()

    def encode(self, done: Iterable[Done]) -> bytes:
        """Return the body of the request that tells of `done`."""
        message = ExportTraceServiceRequest.FromString(self._nothing)
        add = message.resource_spans[0].scope_spans[0].spans.add
        for each in done:
            if len(each) == _LENGTH_OF_OUTGOING:
                _add_outgoing(add, each)
            else:
                _add_request(add, each)
        return bytes(message.SerializeToString())


_LENGTH_OF_OUTGOING: Final = 4


def _add_request(add: _Add, request: Request) -> None:
    place, what, calls = request
    if calls:
        _add_calls(add, place, calls)
    _add_at(add, place, _of_request(place[5], *what))


def _add_calls(add: _Add, place: Place, calls: list[Call]) -> None:
    high, low, state, span_id, *_ = place
    trace, around = _trace_id(high, low), _span_id(span_id)
    for ended_ns, seconds, *what in calls:
        add(
            trace_id=trace,
            span_id=_span_id(getrandbits(64) or 1),
            trace_state=state,
            parent_span_id=around,
            start_time_unix_nano=ended_ns - round(seconds * 1e9),
            end_time_unix_nano=ended_ns,
        ).MergeFromString(_of_call(*what))


def _add_outgoing(add: _Add, outgoing: Outgoing) -> None:
    place, name, attributes, failed = outgoing
    _add_at(add, place, _of_outgoing(place[5], name, tuple(attributes.items()), failed))


def _add_at(add: _Add, place: Place, form: bytes) -> None:
    high, low, state, span_id, parent_id, _, began_ns, ended_ns = place
    add(
        trace_id=_trace_id(high, low),
        span_id=_span_id(span_id),
        trace_state=state,
        parent_span_id=_span_id(parent_id) if parent_id else b"",
        start_time_unix_nano=began_ns,
        end_time_unix_nano=ended_ns,
    ).MergeFromString(form)


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
