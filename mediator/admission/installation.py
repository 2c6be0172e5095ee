"""The vocabulary of rules here: runs, flows, standing queries, tenants, and measured figures."""

from __future__ import annotations

import re
from typing import Final

from mediator.admission.refusals import MAX_DURATION_S
from mediator.admission.vocabulary import (
    NUMBER,
    TEXT,
    ActionType,
    EventType,
    Restricted,
    Vocabulary,
)
from mediator.schema.ids import NAME

__all__ = ["INSTALLATION", "TIMER"]

TIMER: Final = "Timer"

_STATE: Final = "state of a run"
_OF_RUN: Final = EventType({"run": "run"}, "installation")
_ON_RUN: Final = ("run",)
_OF_FLOW: Final = EventType({"flow": "flow"}, "installation")
_OF_QUERY: Final = EventType({"query": "query"}, "installation")

_SECONDS: Final = Restricted(
    NUMBER,
    lambda seconds: 1 <= seconds <= MAX_DURATION_S,
    f"a time of 1 to {MAX_DURATION_S:g} seconds",
)
_CLASS: Final = Restricted(
    TEXT,
    re.compile(rf"{NAME.pattern}\.{NAME.pattern}").fullmatch,
    'the name of a class, as "shop.orders",',
)
"""It need not exist: classes are created and dropped while rules stay."""

_AT_REST: Final = (
    "the input of a run is at rest, so nothing arrives that a pause would keep: stopRun keeps"
    " finished stages, and startRun goes on behind them"
)
_WHOLE: Final = "a run has an answer for all of its input or none, so it cannot run partially"
_NO_WAY_BACK: Final = "what is removed does not come back; stopRun can be undone"
_BOUNDED_ALREADY: Final = (
    "reads that demand nothing else are answered from caches and materialised views within their"
    " bounds already, and others must not be"
)

INSTALLATION: Final = Vocabulary(
    events={
        "RunSubmitted": _OF_RUN,
        "RunStarted": _OF_RUN,
        "RunEnded": _OF_RUN,
        "FlowLate": _OF_FLOW,
        "QueryLate": _OF_QUERY,
        TIMER: EventType({}, None),
    },
    subjects={
        "run": {
            "id": TEXT,
            "database": TEXT,
            "kind": TEXT,
            "prio": NUMBER,
            "state": _STATE,
            "age_s": NUMBER,
        },
        "flow": {
            "id": TEXT,
            "database": TEXT,
            "name": TEXT,
            "queued": NUMBER,
            "late": NUMBER,
            "paused_s": NUMBER,
        },
        "query": {
            "id": TEXT,
            "database": TEXT,
            "name": TEXT,
            "lag": NUMBER,
            "late": NUMBER,
            "paused_s": NUMBER,
        },
        "tenant": {"name": TEXT, "prio": NUMBER, "rate": NUMBER, "in_flight": NUMBER},
    },
    constants=dict.fromkeys(
        ("QUEUED", "ACTIVE", "INACTIVE", "DONE", "FAILED", "STOPPED", "CANCELLED"), _STATE
    ),
    figures={
        "workerCpuLoad": "processor time of the busiest worker, in percent of its limit",
        "workerMemoryLoad": "memory of the fullest worker, in percent",
        "serviceCpuLoad": "processor time of this replica, in percent of its limit",
        "serviceMemoryLoad": "memory of this replica, in percent",
        "requestRate": "requests that this replica answered in a second",
        "requestsInFlight": "requests that this replica is answering",
        "requestLatency": "the 99th percentile of their durations, in milliseconds",
        "failureShare": "those answered with 5xx, in percent",
    },
    existence={
        "existsRun": "run",
        "existsFlow": "flow",
        "existsQuery": "query",
        "existsTenant": "tenant",
    },
    selection={
        "selectRandomRun": "run",
        "selectRandomFlow": "flow",
        "selectRandomQuery": "query",
        "selectRandomTenant": "tenant",
    },
    actions={
        "stopRun": ActionType(_ON_RUN, "installation", undone_by="startRun"),
        "startRun": ActionType(_ON_RUN, "installation"),
        "pauseFlow": ActionType(("flow", _SECONDS), "installation"),
        "resumeFlow": ActionType(("flow",), "installation"),
        "pauseQuery": ActionType(("query", _SECONDS), "installation"),
        "resumeQuery": ActionType(("query",), "installation"),
        "refuseTenant": ActionType(("tenant", _SECONDS), "replica"),
        "refuseBelow": ActionType((NUMBER, _SECONDS), "replica"),
        "refuseClass": ActionType((_CLASS, _SECONDS), "replica"),
    },
    extents={
        "run": "installation",
        "flow": "installation",
        "query": "installation",
        "tenant": "replica",
        "workerCpuLoad": "installation",
        "workerMemoryLoad": "installation",
    },
    refused={
        "pauseRun": _AT_REST,
        "resumeRun": _AT_REST,
        "partialRun": _WHOLE,
        "fullRun": _WHOLE,
        "startPartialRun": _WHOLE,
        "removeRun": _NO_WAY_BACK,
        "answerFromCache": _BOUNDED_ALREADY,
        "answerFromView": _BOUNDED_ALREADY,
    },
)
"""The current vocabulary; each new source of events adds its own."""
