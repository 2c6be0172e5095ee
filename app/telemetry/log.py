"""The log: one line for each event, as JSON for machines or as text for people."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final, get_args

import orjson
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

from app.settings.telemetry import LogFormat
from mediator.base.observation import (
    ChangesRelayed,
    CircuitChanged,
    ClockSkewMeasured,
    CostlyQueryFound,
    EventStreamAppended,
    EventStreamRefused,
    FeedGapFound,
    FeedRollbackFound,
    FlowCounted,
    Observation,
    RedoRecovered,
    RequestDelayed,
    RequestFinished,
    StandingQueriesCounted,
    StoreCallFinished,
    ViewReadFinished,
    ViolationDetected,
)

__all__ = ["LOGGED_EVENTS", "JsonLines", "log_observation", "start_logging"]

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MAX_CHARACTERS: Final = 8_192
"""Maximum characters of a text in a line."""

_UNLOGGED: Final = frozenset(
    {
        RequestDelayed,
        RequestFinished,
        StoreCallFinished,
        ViewReadFinished,
        ChangesRelayed,
        FlowCounted,
        StandingQueriesCounted,
        EventStreamAppended,
        EventStreamRefused,
        ClockSkewMeasured,
        CostlyQueryFound,
    }
)
LOGGED_EVENTS: Final[frozenset[type[Any]]] = frozenset(get_args(Observation)) - _UNLOGGED
"""The events that `log_observation` writes."""

_log = logging.getLogger("portolan")


def log_observation(event: Observation) -> None:
    """Log an event for operators; frequent events are left to the metrics."""
    if event.__class__ in _UNLOGGED:
        return
    match event:
        case CircuitChanged(open=True) | ViolationDetected() | FeedRollbackFound():
            _log.warning("%s", event)
        case FeedGapFound() | RedoRecovered(outcome="refused"):
            _log.error("%s", event)
        case _:
            _log.info("%s", event)


def start_logging(form: LogFormat | None = None) -> LogFormat:
    """Write the log to standard error; without a form, as text to a terminal, else as JSON.

    Returns:
        The form.
    """
    form = form or ("text" if sys.stderr.isatty() else "json")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level="WARNING", handlers=[handler])
    return form


class JsonLines(logging.Formatter):
    """One JSON object for each record.

    An event is logged by its name with its members, any other message as its text. Within a traced
    request the ids of its trace and span are added.
    """

    def format(self, record: logging.LogRecord) -> str:
        timestamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "timestamp": timestamp,
            "level": record.levelname.lower(),
            "logger": record.name,
            **_message(record),
            **_trace_ids(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-_MAX_CHARACTERS:]
        return _json(line)


def _json(line: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(line, default=str).decode()
    except orjson.JSONEncodeError:
        # A file name can have lone surrogates, for which JSON has escapes.
        return json.dumps(line, default=str)


def _message(record: logging.LogRecord) -> Mapping[str, Any]:
    event = _event_of(record)
    if event is None:
        return {"message": record.getMessage()[:_MAX_CHARACTERS]}
    members = {field.name: _bounded(getattr(event, field.name)) for field in fields(event)}
    return {"message": type(event).__name__, "event": members}


def _event_of(record: logging.LogRecord) -> Any:
    args = record.args
    if record.msg != "%s" or not isinstance(args, tuple) or len(args) != 1:
        return None
    return args[0] if is_dataclass(args[0]) else None


def _bounded(value: Any) -> Any:
    return value[:_MAX_CHARACTERS] if isinstance(value, str) else value


def _trace_ids() -> Mapping[str, str]:
    span = get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": format_trace_id(span.trace_id), "span_id": format_span_id(span.span_id)}
