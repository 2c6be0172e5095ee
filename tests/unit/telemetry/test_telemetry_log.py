"""The log as JSON: one line for each event, with its trace, and without secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.context import Context, attach
from opentelemetry.trace import get_current_span

from app.telemetry.log import JsonLines, log_observation
from app.telemetry.traces import Traces
from mediator.base.observation import (
    CircuitChanged,
    FeedGapFound,
    RequestFinished,
    StoreCallFinished,
)


class Log:
    """The written log."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("portolan")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield Log(stream)
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_an_event_is_logged_with_its_members(log: Log) -> None:
    log_observation(CircuitChanged("redis", open=True, reason="it does\nnot answer"))
    (line,) = log.lines()
    assert line["message"] == "CircuitChanged"
    assert line["event"] == {"system": "redis", "open": True, "reason": "it does\nnot answer"}
    assert (line["level"], line["logger"]) == ("warning", "portolan")
    assert "trace_id" not in line


def test_levels_follow_the_severity_of_events(log: Log) -> None:
    log_observation(FeedGapFound("redis", ("news",), "gone"))
    log_observation(StoreCallFinished("redis", "d", "c", "read", 1, 0.1, "ok"))
    log_observation(RequestFinished("GET", "/", 200, 0.1))
    assert [line["level"] for line in log.lines()] == ["error"], "requests are not logged"


def test_a_name_that_is_not_unicode_is_logged() -> None:
    """Without a logger: a pytest worker could not send the captured text."""
    name = b"caf\xe9".decode(errors="surrogateescape")
    record = logging.LogRecord("portolan", logging.WARNING, "", 0, "%s is gone", (name,), None)
    line = json.loads(JsonLines().format(record))
    assert ascii(line["message"]) == r"'caf\udce9 is gone'"


def test_a_log_line_has_its_trace_id(log: Log) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    traces = Traces(lambda _: None, 0.0)
    traces.start_request([(b"traceparent", f"00-{trace_id}-b7ad6b7169203331-00".encode())])
    logging.getLogger("portolan").info("something %s", "odd")
    span_id = get_current_span().get_span_context().span_id
    attach(Context())
    (line,) = log.lines()
    assert line["message"] == "something odd"
    assert line["trace_id"] == trace_id
    assert line["span_id"] == f"{span_id:016x}"


def test_the_length_of_a_log_line_is_bounded(log: Log) -> None:
    error = ValueError("x" * 100_000)
    logging.getLogger("portolan").error("y" * 100_000, exc_info=error)
    (line,) = log.lines()
    assert len(line["message"]) == len(line["exception"]) == 8_192


def test_a_plain_log_message_is_a_sentence(log: Log) -> None:
    logging.getLogger("portolan").info("%s", {"not": "an event"})
    assert log.lines()[0]["message"] == "{'not': 'an event'}"
