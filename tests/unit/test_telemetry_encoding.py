"""Spans as they are sent: exactly what the library makes of the same, held against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from app.telemetry.encoding import Encoder
from app.telemetry.spans import Done, Location

RESOURCE = Resource({"service.name": "portolan", "service.instance.id": "\u00fc1"})

halves = st.integers(0, 2**64 - 1)
ids = st.integers(1, 2**64 - 1)
times = st.integers(10**18, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
words = st.sampled_from(["news", "articles", "a", ""]) | texts
keys = st.sampled_from(["a", "vendor", "0tenant@sys", "x_-*/"])
states = st.dictionaries(keys, st.sampled_from(["1", "kept:here", "a b"]), max_size=3).map(
    lambda pairs: TraceState(list(pairs.items())).to_header()
)
within = st.just((0, False)) | st.tuples(ids, st.booleans())
places = st.builds(
    lambda high, low, state, span_id, parent, began, ended: (
        (high, low, state, span_id, *parent, began, ended)
    ),
    *(halves, ids, states, ids, within, times, times),
)
calls = st.tuples(
    times,
    st.floats(0, 1e6),
    words,
    words,
    words,
    words,
    words,
    st.integers(0, 2**40),
    st.sampled_from(["", "timeout", "unavailable"]),
)
requests = st.tuples(
    places,
    st.tuples(words, words, st.integers(100, 599), words, st.integers(0, 2**40)),
    st.lists(calls, max_size=4),
)
attributes = st.dictionaries(
    texts.filter(bool), texts | st.integers(-(2**63), 2**63 - 1), max_size=5
)
outgoing = st.tuples(places, words, attributes, st.booleans())
done: st.SearchStrategy[list[Done]] = st.lists(requests | outgoing, max_size=6)


@given(done)
def test_what_is_sent_is_what_the_library_makes_of_it(told: list[Done]) -> None:
    sent = decoded(Encoder(RESOURCE), told)
    (resource,) = sent.resource_spans
    (scope,) = resource.scope_spans
    made = iter([int.from_bytes(span.span_id) for span in scope.spans])
    expected = [span for each in told for span in readable(each, made)]
    if expected:
        assert sent == encode_spans(expected)
    else:
        assert not scope.spans


@given(done)
def test_what_came_before_shows_nowhere(told: list[Done]) -> None:
    encoder = Encoder(RESOURCE)
    for _ in range(2):
        again = decoded(encoder, told)
        for span in again.resource_spans[0].scope_spans[0].spans:
            assert len(span.trace_id) == 16
            assert len(span.span_id) == 8
            assert span.span_id != bytes(8)
    first, second = (decoded(encoder, told) for _ in range(2))
    for message in (first, second):
        for span in message.resource_spans[0].scope_spans[0].spans:
            span.ClearField("span_id")  # those of calls are made as they are encoded
    assert first == second


@pytest.mark.parametrize("count", [1, 100, 20_000])
def test_a_batch_may_be_long(count: int) -> None:
    place = (1, 2, "", 3, 0, False, 10**18, 10**18 + 1)
    told: list[Done] = [(place, ("GET", "/", 200, "http", 0), [])] * count
    (resource,) = decoded(Encoder(RESOURCE), told).resource_spans
    assert len(resource.scope_spans[0].spans) == count


def decoded(encoder: Encoder, told: list[Done]) -> ExportTraceServiceRequest:
    """Encode what was done as it comes through the pipe."""
    message = ExportTraceServiceRequest()
    message.ParseFromString(encoder.encode(orjson.loads(orjson.dumps(told))))
    return message


def readable(done: Done, made: Iterator[int]) -> Iterator[ReadableSpan]:
    """Return what was done as the library takes it; the ids of calls are those that were `made`."""
    place = done[0]
    if len(done) == 4:
        _, name, attributes, failed = done
        next(made)
        yield span(place, name, SpanKind.CLIENT, attributes, failed)
        return
    _, (method, route, status, scheme, left_out), calls = done
    high, low, state, around, *_ = place
    for ended, seconds, kind, system, database, class_name, operation, count, error in calls:
        began = ended - round(seconds * 1e9)
        yield span(
            (high, low, state, next(made), around, False, began, ended),
            f"{operation} {class_name}",
            SpanKind.CLIENT,
            {
                "db.system.name": kind,
                "db.namespace": database,
                "db.collection.name": class_name,
                "db.operation.name": operation,
                "portolan.system": system,
                **({"db.operation.batch.size": count} if count > 1 else {}),
                **({"error.type": error} if error else {}),
            },
            bool(error),
        )
    next(made)
    yield span(
        place,
        f"{method} {route}",
        SpanKind.SERVER,
        {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "url.scheme": scheme,
            **({"portolan.store_calls.left_out": left_out} if left_out else {}),
        },
        status >= 500,
    )


def span(
    place: Location, name: str, kind: SpanKind, attributes: Mapping[str, Any], failed: bool
) -> ReadableSpan:
    high, low, header, span_id, parent_id, remote, began, ended = place
    trace_id, state = high << 64 | low, TraceState.from_header([header])
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return ReadableSpan(
        name,
        SpanContext(trace_id, span_id, False, sampled, state),
        SpanContext(trace_id, parent_id, remote, sampled, state) if parent_id else None,
        RESOURCE,
        attributes,
        kind=kind,
        status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
        start_time=began,
        end_time=ended,
        instrumentation_scope=InstrumentationScope("portolan"),
    )
