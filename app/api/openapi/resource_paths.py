"""The paths of jobs, flows, streams, views and standing queries."""

from __future__ import annotations

from typing import Any

from app.api.models.event_streams import TuplesParameters
from app.api.models.flows import DeadLetterParameters, EndedParameters, ReplayParameters
from app.api.models.jobs import ResultParameters, RunListParameters, SubmissionParameters
from app.api.models.standing import PlanParameters, ResultsParameters
from app.api.models.views import DeltasParameters
from app.api.openapi.operations import (
    ALWAYS,
    CREATING,
    TEXT,
    WITH_BODY,
    empty,
    in_json,
    operation,
)
from app.http.negotiation import EVENT_STREAM, FILES, JSON, NDJSON, SVG
from app.http.validation import Parameters

__all__ = ["resource_paths"]


def resource_paths() -> dict[str, Any]:
    return _of_jobs() | _of_flows() | _of_streams() | _of_views() | _of_standing_queries()


def _of_jobs() -> dict[str, Any]:
    accepted = {**in_json("Run", "Location", "Idempotency-Replayed"), "description": "Accepted"}
    submit = operation(
        "submitJob",
        "Submit an analytic job",
        {202: accepted},
        ("idempotencyKey",),
        (*ALWAYS, *CREATING, 422),
        SubmissionParameters,
        {JSON: "Job"},
    )
    runs = {200: in_json("Runs", "Link")}
    list_ = operation("listRuns", "List runs, newest first", runs, query=RunListParameters)
    show_summary = "Show a run, or follow it by server-sent events until it has ended"
    run = {200: in_json("Run", texts=(EVENT_STREAM,))}
    cancellation = {200: in_json("Run"), 202: in_json("Run")}
    resume_summary = "Resume a run that failed or was cancelled"
    resume = operation("resumeRun", resume_summary, {202: in_json("Run")}, problems=(*ALWAYS, 507))
    read_summary = "Read the result of a run: pages of JSON, or the whole as a file, by Accept"
    page = {200: in_json("RunRows", "Link", texts=FILES)}
    results = operation("getResults", read_summary, page, (), (*ALWAYS, 410), ResultParameters)
    return {
        "/v1/{database}/jobs": {"post": submit, "get": list_},
        "/v1/{database}/jobs/{run}": {
            "get": operation("getRun", show_summary, run),
            "delete": operation("cancelRun", "Cancel a run", cancellation),
        },
        "/v1/{database}/jobs/{run}/resume": {"post": resume},
        "/v1/{database}/jobs/{run}/results": {"get": results},
    }


def _of_flows() -> dict[str, Any]:
    show_summary = "Show a message flow: its plans, counts, and its waiting time with the reason"
    accepted = {**in_json("Tickets", "Idempotency-Replayed"), "description": "Queued"}
    send = operation(
        "sendMessages",
        "Queue messages",
        {202: accepted},
        ("idempotencyKey",),
        (*ALWAYS, *CREATING, 422),
        body={JSON: "NewMessages"},
    )
    state = {200: in_json("MessageState")}
    follow_summary = "Follow the results of messages: a page, or endless server-sent events"
    letters = {200: in_json("DeadLetters")}
    list_failed = operation(
        "listDeadLetters", "List messages that failed", letters, query=DeadLetterParameters
    )
    replay_summary = "Requeue failed messages under their tickets"
    return {
        "/v1/{database}/message-flows": {
            **_create("createFlow", "Create a message flow", "MessageFlow"),
            **_show("listFlows", "List message flows", "MessageFlows"),
        },
        "/v1/{database}/message-flows/{flow}": {
            **_show("getFlow", show_summary, "MessageFlowReport"),
            **_drop("dropFlow", "Remove a message flow with its messages"),
        },
        "/v1/{database}/message-flows/{flow}/messages": {"post": send},
        "/v1/{database}/message-flows/{flow}/messages/{ticket}": {
            "get": operation("getMessage", "Show the state of a message", state)
        },
        "/v1/{database}/message-flows/{flow}/results": _follow(
            "followResults", follow_summary, "EndedMessages", EndedParameters
        ),
        "/v1/{database}/message-flows/{flow}/dead-letters": {"get": list_failed},
        "/v1/{database}/message-flows/{flow}/replay": {
            "post": operation(
                "replayDeadLetters",
                replay_summary,
                {202: in_json("Replayed")},
                query=ReplayParameters,
            )
        },
    }


def _of_streams() -> dict[str, Any]:
    show = "Show an event stream: its stored tuples, its rate, and its consumers"
    append = operation(
        "appendTuples",
        "Append tuples to an event stream, all or none",
        {200: in_json("AppendedTuples", "Idempotency-Replayed")},
        ("idempotencyKey",),
        (*ALWAYS, *WITH_BODY, 422),
        body={JSON: "NewTuples"},
    )
    append["requestBody"]["content"][NDJSON] = TEXT
    follow = "Follow an event stream: a page of tuples, or endless server-sent events"
    return {
        "/v1/{database}/event-streams": {
            **_create("declareStream", "Declare an event stream", "EventStream"),
            **_show("listStreams", "List event streams", "EventStreams"),
        },
        "/v1/{database}/event-streams/{stream}": {
            **_show("getStream", show, "EventStreamReport"),
            **_drop("dropStream", "Remove an event stream with its tuples"),
        },
        "/v1/{database}/event-streams/{stream}/tuples": {
            "post": append,
            **_follow("followStream", follow, "EventStreamTuples", TuplesParameters),
        },
    }


def _of_views() -> dict[str, Any]:
    read = "Read the result of an incremental view, with its position in the feed"
    follow = "Follow the changes of a result: a page of deltas, or endless server-sent events"
    new, report = "NewIncrementalView", "IncrementalViewReport"
    return {
        "/v1/{database}/incremental-views": {
            **_create("createView", "Create an incremental view", report, new),
            **_show("listViews", "List incremental views", "IncrementalViews"),
        },
        "/v1/{database}/incremental-views/{view}": {
            **_show("getView", "Show an incremental view, and its state", report),
            **_drop("dropView", "Remove an incremental view with its result"),
        },
        "/v1/{database}/incremental-views/{view}/result": _show(
            "getViewResult", read, "ViewResult"
        ),
        "/v1/{database}/incremental-views/{view}/deltas": _follow(
            "followView", follow, "ViewDeltas", DeltasParameters
        ),
    }


def _of_standing_queries() -> dict[str, Any]:
    follow = "Follow results of a standing query: a page, or endless server-sent events"
    plan = "Show the plan of all standing queries, with measurements, or draw it"
    answers = {200: in_json("StandingPlan", texts=(SVG,))}
    new, report = "NewStandingQuery", "StandingQueryReport"
    return {
        "/v1/{database}/standing-queries": {
            **_create("createStandingQuery", "Create a standing query", report, new, CREATING),
            **_show("listStandingQueries", "List standing queries", "StandingQueries"),
        },
        "/v1/{database}/standing-queries/plan": {
            "get": operation("planStandingQueries", plan, answers, query=PlanParameters)
        },
        "/v1/{database}/standing-queries/{query}": {
            **_show("getStandingQuery", "Show a standing query, and its state", report),
            **_drop("dropStandingQuery", "Remove a standing query with its results"),
        },
        "/v1/{database}/standing-queries/{query}/results": _follow(
            "followStandingQuery", follow, "StandingResults", ResultsParameters
        ),
    }


def _create(
    name: str, summary: str, schema: str, body: str = "", problems: tuple[int, ...] = WITH_BODY
) -> dict[str, Any]:
    created = {**in_json(schema, "Location"), "description": "Created"}
    content = {JSON: body or f"New{schema}"}
    statuses = (*ALWAYS, *problems)
    return {"post": operation(name, summary, {201: created}, (), statuses, body=content)}


def _show(name: str, summary: str, schema: str) -> dict[str, Any]:
    return {"get": operation(name, summary, {200: in_json(schema)})}


def _drop(name: str, summary: str) -> dict[str, Any]:
    return {"delete": operation(name, summary, {204: empty()})}


def _follow(name: str, summary: str, page: str, query: type[Parameters]) -> dict[str, Any]:
    """Describe a feed that is read in pages, or as server-sent events after the last one."""
    answers = {200: in_json(page, texts=(EVENT_STREAM,))}
    return {"get": operation(name, summary, answers, ("lastEventId",), (*ALWAYS, 410), query)}
