"""The paths of the data API in OpenAPI 3.1: their parameters, bodies and answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from app.api.models.event_streams import TuplesParameters
from app.api.models.flows import DeadLetterParameters, EndedParameters
from app.api.models.jobs import ResultParameters, RunListParameters, SubmissionParameters
from app.api.models.reads import (
    ChangesParameters,
    DocumentParameters,
    ExportParameters,
    ImportParameters,
    SketchParameters,
)
from app.api.models.standing import PlanParameters, ResultsParameters
from app.api.models.views import DeltasParameters
from app.api.openapi.components import answer, parameters_of, ref
from app.http.negotiation import (
    EVENT_STREAM,
    FILES,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    NDJSON,
    SKETCH,
    SVG,
    UPDATE,
)
from app.http.validation import Parameters

__all__ = ["data_paths"]

_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_ALWAYS: Final = (400, 401, 403, 404, 406, 409, 429, 500, 503)
_WITH_BODY: Final = (413, 415)
_CREATING: Final = (*_WITH_BODY, 507)
_CONDITIONAL: Final = (412, 428)
_TEXT: Final[dict[str, Any]] = {"schema": {"type": "string"}}
_ON_RETRY: Final = ("idempotencyKey", "prefer")

_PINNABLE: Final = (
    "/v1/{database}/{class}/{id}",
    "/v1/{database}/{class}",
    "/v1/{database}/{class}/query",
    "/v1/{database}/{class}/import",
    "/v1/{database}/{class}/export",
    "/v1/{database}/batch",
    "/v1/{database}/transactions",
    "/v1/{database}/changes",
)

_PATCHES: Final = {
    MERGE_PATCH: "MergePatch",
    JSON_PATCH: "JsonPatch",
    JSON: "Patch",
    UPDATE: "OperatorPatch",
}

_READ: Final = (
    "ETag",
    "Cache-Control",
    "CDN-Cache-Control",
    "Cache-Groups",
    "Cache-Status",
    "Portolan-Expires",
    "Portolan-As-Of",
    "Preference-Applied",
    "Portolan-Partial",
)
_FOUND: Final = ("Cache-Control", "Preference-Applied", "Portolan-Partial")
_WRITTEN: Final = (
    "ETag",
    "Cache-Control",
    "Preference-Applied",
    "Portolan-Partial",
    "Portolan-Position",
    "Idempotency-Replayed",
)


def data_paths() -> dict[str, Any]:
    summary = "Say what can be done here"
    options = _operation(None, summary, {204: _empty("Allow")}, problems=(400, 404))
    paths = {
        "/v1/{database}/{class}/{id}": _object(),
        "/v1/{database}/{class}": _collection(),
        "/v1/{database}/{class}/query": {"post": _query()},
        "/v1/{database}/{class}/import": {"post": _import()},
        "/v1/{database}/{class}/export": _export(),
        "/v1/{database}/changes": {"get": _changes()},
        "/v1/{database}/sketch": _sketch(),
        "/v1/{database}/openapi.json": _document(),
        "/v1/{database}/batch": {"post": _batch()},
        "/v1/{database}/transactions": {"post": _transaction()},
        "/v1/{database}/jobs": _jobs(),
        "/v1/{database}/jobs/{run}": _run(),
        "/v1/{database}/jobs/{run}/resume": {"post": _resume()},
        "/v1/{database}/jobs/{run}/results": {"get": _results()},
        "/v1/{database}/message-flows": _flows(),
        "/v1/{database}/message-flows/{flow}": _flow(),
        "/v1/{database}/message-flows/{flow}/messages": {"post": _messages()},
        "/v1/{database}/message-flows/{flow}/messages/{ticket}": {"get": _message()},
        "/v1/{database}/message-flows/{flow}/results": {"get": _ended()},
        "/v1/{database}/message-flows/{flow}/dead-letters": {"get": _dead_letters()},
        "/v1/{database}/message-flows/{flow}/replay": {"post": _replay()},
        "/v1/{database}/event-streams": _streams(),
        "/v1/{database}/event-streams/{stream}": _stream(),
        "/v1/{database}/event-streams/{stream}/tuples": _tuples(),
        "/v1/{database}/incremental-views": _views(),
        "/v1/{database}/incremental-views/{view}": _view(),
        "/v1/{database}/incremental-views/{view}/result": {"get": _result()},
        "/v1/{database}/incremental-views/{view}/deltas": {"get": _deltas()},
        "/v1/{database}/standing-queries": _standing_queries(),
        "/v1/{database}/standing-queries/plan": {"get": _standing_plan()},
        "/v1/{database}/standing-queries/{query}": _standing_query(),
        "/v1/{database}/standing-queries/{query}/results": {"get": _standing_results()},
    }
    return {
        path: {"parameters": _parameters(_VARIABLE.findall(path)), **methods, "options": options}
        for path, methods in (paths | {path: _pinnable(paths[path]) for path in _PINNABLE}).items()
    }


def _pinnable(methods: dict[str, Any]) -> dict[str, Any]:
    """Add that requests may be pinned to a version of the schema, which may be retired."""
    pinned, retired = _parameters(["schemaVersion"]), {"410": ref("responses", "410")}
    return {
        method: {
            **operation,
            "parameters": [*operation["parameters"], *pinned],
            "responses": dict(sorted((operation["responses"] | retired).items())),
        }
        for method, operation in methods.items()
    }


def _object() -> dict[str, Any]:
    written = ("fields", "ifMatch", "ifNoneMatch", "idempotencyKey", "prefer")
    read = ("fields", "maxAge", "ifMatch", "ifNoneMatch", "prefer")
    changed = {200: _json("StoredObject", *_WRITTEN), 204: _empty(*_WRITTEN)}
    failing = (*_ALWAYS, *_CONDITIONAL, 422)
    shown = {200: _json("StoredObject", *_READ), 304: _empty(*_READ)}
    summary = "Read an object, or some of its fields"
    return {
        **_reads(("getObject", "headObject"), summary, shown, read, (*_ALWAYS, 412)),
        "put": _operation(
            "putObject",
            "Make an object what the body says",
            {**changed, 201: _created(*_WRITTEN)},
            written,
            (*failing, *_CREATING),
            body={JSON: "Object"},
        ),
        "patch": _operation(
            "patchObject",
            "Change an object, or create it",
            {**changed, 201: _created(*_WRITTEN)},
            (*written, "upsert"),
            (*failing, *_WITH_BODY),
            body=_PATCHES,
        ),
        "delete": _operation("deleteObject", "Delete an object", changed, written, failing),
    }


def _collection() -> dict[str, Any]:
    query = ("fields", "ids", "filter", "order", "limit", "cursor", "join", "aggregate", "count")
    read = (*query, "allowScan", "explain", "prefer")
    shown = {200: _json("Listing", *_FOUND, "Link")}
    created = {201: _created(*_WRITTEN, "Location"), 200: _json("Results")}
    failing = (*_ALWAYS, *_CREATING, 422)
    post = _operation("createObject", "Create one object, or many", created, _ON_RETRY, failing)
    objects = {"type": "array", "maxItems": 1000, "items": ref("schemas", "Object")}
    one_or_many = {"schema": {"oneOf": [ref("schemas", "Object"), objects]}}
    post["requestBody"] = {"required": True, "content": {JSON: one_or_many}}
    summary = "Find objects by their ids, or by a query; paths are parameters too: year.ge=1970"
    reads = _reads(("listObjects", "headObjects"), summary, shown, read, (*_ALWAYS, 422))
    return {**reads, "post": post, **_filtered_writes()}


def _filtered_writes() -> dict[str, Any]:
    named = ("filter", "all", "allowScan", "lastId", "dryRun", "idempotencyKey")
    done, failing = {200: _json("WriteSummary")}, (*_ALWAYS, 422, 507)
    every = "all objects that meet conditions; paths are parameters too: year.ge=1970"
    written = {
        200: _either("WriteSummary", "StoredObject", *_WRITTEN),
        201: _created(*_WRITTEN, "Location"),
        204: _empty(*_WRITTEN),
    }
    return {
        "patch": _operation(
            "patchObjects",
            f"Change {every}. With upsert: the one that has values of a unique constraint",
            written,
            (*named, "upsert", "prefer"),
            (*failing, *_WITH_BODY),
            body=_PATCHES,
        ),
        "delete": _operation("deleteObjects", f"Delete {every}", done, named, failing),
    }


def _query() -> dict[str, Any]:
    summary = "Find objects, or compute aggregates"
    found = {200: _json("Listing", *_FOUND)}
    failing = (*_ALWAYS, *_WITH_BODY, 422)
    return _operation("queryObjects", summary, found, ("prefer",), failing, body={JSON: "Query"})


def _batch() -> dict[str, Any]:
    done, failing = {200: _json("Results")}, (*_ALWAYS, *_WITH_BODY)
    body = {JSON: "BatchRequest"}
    return _operation("batch", "Do many operations", done, _ON_RETRY, failing, body=body)


def _transaction() -> dict[str, Any]:
    summary = "Do all of some operations if what was read still stands, or nothing"
    done = {200: _json("TransactionResults", "Idempotency-Replayed")}
    failing = (*_ALWAYS, *_CREATING, *_CONDITIONAL, 422)
    body = {JSON: "TransactionRequest"}
    return _operation("transact", summary, done, _ON_RETRY, failing, body=body)


def _import() -> dict[str, Any]:
    done, failing = {200: _json("ImportSummary")}, (*_ALWAYS, *_CREATING)
    key = ("idempotencyKey",)
    post = _operation("importObjects", "Put every line", done, key, failing, ImportParameters)
    return post | {"requestBody": {"required": True, "content": {NDJSON: _TEXT}}}


def _export() -> dict[str, Any]:
    shown = {200: {**answer("One object on each line"), "content": {NDJSON: _TEXT}}}
    summary = "Stream every object in the order of ids"
    return _reads(("exportObjects", "headExport"), summary, shown, query=ExportParameters)


def _changes() -> dict[str, Any]:
    summary = "Follow the change feed: a page of changes, or server-sent events without end"
    page = {200: _json("Changes", "Cache-Control", texts=(EVENT_STREAM,))}
    resumed, failing = ("lastEventId",), (*_ALWAYS, 410)
    return _operation("followChanges", summary, page, resumed, failing, ChangesParameters)


def _sketch() -> dict[str, Any]:
    headers = ("ETag", "Cache-Control", "Portolan-Sketch-Time")
    shown = {200: _json("ClientFilter", *headers, texts=(SKETCH,)), 304: _empty(*headers)}
    summary = "Read the filter by which a client knows which copies to revalidate"
    conditions, failing = ("ifNoneMatch",), (*_ALWAYS, 412)
    names = "getSketch", "headSketch"
    return _reads(names, summary, shown, conditions, failing, SketchParameters)


def _document() -> dict[str, Any]:
    headers = ("ETag", "Cache-Control")
    document = {**answer("Done", *headers), "content": {JSON: {"schema": {"type": "object"}}}}
    shown = {200: document, 304: _empty(*headers)}
    summary = "Describe the classes of the database, in OpenAPI 3.1"
    names, conditions = ("getDocument", "headDocument"), ("ifMatch", "ifNoneMatch")
    return _reads(names, summary, shown, conditions, (*_ALWAYS, 412), DocumentParameters)


def _jobs() -> dict[str, Any]:
    accepted = {**_json("Run", "Location", "Idempotency-Replayed"), "description": "Written down"}
    submit = _operation(
        "submitJob",
        "Submit an analytic job",
        {202: accepted},
        ("idempotencyKey",),
        (*_ALWAYS, *_CREATING, 422),
        SubmissionParameters,
        {JSON: "Job"},
    )
    listed = {200: _json("Runs", "Link")}
    list_ = _operation("listRuns", "List runs, newest first", listed, query=RunListParameters)
    return {"post": submit, "get": list_}


def _run() -> dict[str, Any]:
    summary = "Show a run, or follow it by server-sent events until it has ended"
    shown = {200: _json("Run", texts=(EVENT_STREAM,))}
    cancelled = {200: _json("Run"), 202: _json("Run")}
    return {
        "get": _operation("getRun", summary, shown),
        "delete": _operation("cancelRun", "Cancel a run", cancelled),
    }


def _resume() -> dict[str, Any]:
    summary = "Go on with a run that failed or was cancelled"
    return _operation("resumeRun", summary, {202: _json("Run")}, problems=(*_ALWAYS, 507))


def _results() -> dict[str, Any]:
    summary = "Read the result of a run: pages of JSON, or the whole as a file, by Accept"
    page = {200: _json("RunRows", "Link", texts=FILES)}
    return _operation("getResults", summary, page, (), (*_ALWAYS, 410), ResultParameters)


def _flows() -> dict[str, Any]:
    created = {**_json("MessageFlow", "Location"), "description": "Created"}
    problems = (*_ALWAYS, *_WITH_BODY)
    body = {JSON: "NewMessageFlow"}
    summary = "Create a message flow"
    return {
        "post": _operation("createFlow", summary, {201: created}, (), problems, body=body),
        "get": _operation("listFlows", "List message flows", {200: _json("MessageFlows")}),
    }


def _flow() -> dict[str, Any]:
    shown = {200: _json("MessageFlowReport")}
    summary = "Show a message flow: its plans, counts, and its waiting time with the reason"
    drop = "Remove a message flow with its messages"
    return {
        "get": _operation("getFlow", summary, shown),
        "delete": _operation("dropFlow", drop, {204: _empty()}),
    }


def _messages() -> dict[str, Any]:
    accepted = {**_json("Tickets", "Idempotency-Replayed"), "description": "Queued"}
    problems = (*_ALWAYS, *_CREATING, 422)
    keyed, body = ("idempotencyKey",), {JSON: "NewMessages"}
    summary = "Queue messages"
    return _operation("sendMessages", summary, {202: accepted}, keyed, problems, body=body)


def _message() -> dict[str, Any]:
    return _operation("getMessage", "Show what became of a message", {200: _json("MessageState")})


def _ended() -> dict[str, Any]:
    summary = "Follow the results of messages: a page, or server-sent events without end"
    page = {200: _json("EndedMessages", texts=(EVENT_STREAM,))}
    resumed, failing = ("lastEventId",), (*_ALWAYS, 410)
    return _operation("followResults", summary, page, resumed, failing, EndedParameters)


def _dead_letters() -> dict[str, Any]:
    listed, summary = {200: _json("DeadLetters")}, "List messages that failed"
    return _operation("listDeadLetters", summary, listed, query=DeadLetterParameters)


def _replay() -> dict[str, Any]:
    summary = "Queue messages that failed again, under their tickets"
    return _operation("replayDeadLetters", summary, {202: _json("Replayed")})


def _streams() -> dict[str, Any]:
    created = {**_json("EventStream", "Location"), "description": "Created"}
    problems, body = (*_ALWAYS, *_WITH_BODY), {JSON: "NewEventStream"}
    summary = "Declare an event stream"
    listed = {200: _json("EventStreams")}
    return {
        "post": _operation("declareStream", summary, {201: created}, (), problems, body=body),
        "get": _operation("listStreams", "List event streams", listed),
    }


def _stream() -> dict[str, Any]:
    shown = {200: _json("EventStreamReport")}
    summary = "Show an event stream: what is kept of it, its rate, and its consumers"
    drop = "Remove an event stream with its tuples"
    return {
        "get": _operation("getStream", summary, shown),
        "delete": _operation("dropStream", drop, {204: _empty()}),
    }


def _tuples() -> dict[str, Any]:
    appended = {200: _json("AppendedTuples", "Idempotency-Replayed")}
    problems, keyed = (*_ALWAYS, *_WITH_BODY, 422), ("idempotencyKey",)
    append = "Append tuples to an event stream, all or none"
    follow = "Follow an event stream: a page of tuples, or server-sent events without end"
    page = {200: _json("EventStreamTuples", texts=(EVENT_STREAM,))}
    resumed, failing = ("lastEventId",), (*_ALWAYS, 410)
    post = _operation("appendTuples", append, appended, keyed, problems, body={JSON: "NewTuples"})
    post["requestBody"]["content"][NDJSON] = _TEXT
    return {
        "post": post,
        "get": _operation("followStream", follow, page, resumed, failing, TuplesParameters),
    }


def _views() -> dict[str, Any]:
    created = {**_json("IncrementalViewReport", "Location"), "description": "Created"}
    problems, body = (*_ALWAYS, *_WITH_BODY), {JSON: "NewIncrementalView"}
    summary = "Create an incremental view"
    listed = {200: _json("IncrementalViews")}
    return {
        "post": _operation("createView", summary, {201: created}, (), problems, body=body),
        "get": _operation("listViews", "List incremental views", listed),
    }


def _view() -> dict[str, Any]:
    shown = {200: _json("IncrementalViewReport")}
    drop = "Remove an incremental view with its result"
    return {
        "get": _operation("getView", "Show an incremental view, and its state", shown),
        "delete": _operation("dropView", drop, {204: _empty()}),
    }


def _result() -> dict[str, Any]:
    summary = "Read the result of an incremental view, with the position of the feed that it is of"
    return _operation("getViewResult", summary, {200: _json("ViewResult")})


def _deltas() -> dict[str, Any]:
    summary = "Follow how a result changes: a page of deltas, or server-sent events without end"
    page = {200: _json("ViewDeltas", texts=(EVENT_STREAM,))}
    resumed, failing = ("lastEventId",), (*_ALWAYS, 410)
    return _operation("followView", summary, page, resumed, failing, DeltasParameters)


def _standing_queries() -> dict[str, Any]:
    created = {**_json("StandingQueryReport", "Location"), "description": "Created"}
    problems, body = (*_ALWAYS, *_WITH_BODY), {JSON: "NewStandingQuery"}
    summary = "Create a standing query"
    listed = {200: _json("StandingQueries")}
    return {
        "post": _operation("createStandingQuery", summary, {201: created}, (), problems, body=body),
        "get": _operation("listStandingQueries", "List standing queries", listed),
    }


def _standing_query() -> dict[str, Any]:
    shown = {200: _json("StandingQueryReport")}
    drop = "Remove a standing query with its results"
    return {
        "get": _operation("getStandingQuery", "Show a standing query, and its state", shown),
        "delete": _operation("dropStandingQuery", drop, {204: _empty()}),
    }


def _standing_results() -> dict[str, Any]:
    summary = "Follow results of a standing query: a page, or server-sent events without end"
    page = {200: _json("StandingResults", texts=(EVENT_STREAM,))}
    resumed, failing = ("lastEventId",), (*_ALWAYS, 410)
    return _operation("followStandingQuery", summary, page, resumed, failing, ResultsParameters)


def _standing_plan() -> dict[str, Any]:
    summary = "Show the plan of all standing queries, with what was measured, or draw it"
    plan = {200: _json("StandingPlan", texts=(SVG,))}
    return _operation("planStandingQueries", summary, plan, query=PlanParameters)


def _operation(
    name: str | None,
    summary: str,
    answers: dict[int, Any],
    parameters: Iterable[str] = (),
    problems: tuple[int, ...] = _ALWAYS,
    query: type[Parameters] | None = None,
    body: dict[str, str] | None = None,
) -> dict[str, Any]:
    """`answers` are by status; `parameters` name components; `body` has schemas by media type."""
    responses = answers | {status: ref("responses", str(status)) for status in problems}
    operation: dict[str, Any] = {
        **({"operationId": name} if name else {}),
        "summary": summary,
        "tags": ["data"],
        "parameters": [*_parameters(parameters), *(parameters_of(query) if query else ())],
        "responses": {str(status): responses[status] for status in sorted(responses)},
    }
    if body:
        content = {type_: {"schema": ref("schemas", schema)} for type_, schema in body.items()}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _reads(
    names: tuple[str, str], summary: str, answers: dict[int, Any], *rest: Any, **named: Any
) -> dict[str, Any]:
    """Describe GET, and HEAD, which is the same without content."""
    headless = {
        status: {name: part for name, part in answer.items() if name != "content"}
        for status, answer in answers.items()
    }
    get, head = names
    return {
        "get": _operation(get, summary, answers, *rest, **named),
        "head": _operation(head, summary, headless, *rest, **named),
    }


def _parameters(names: Iterable[str]) -> list[dict[str, Any]]:
    return [ref("parameters", name) for name in names]


def _json(schema: str, *headers: str, texts: Iterable[str] = ()) -> dict[str, Any]:
    """Describe an answer that is JSON, or text of some other media types."""
    content = {JSON: {"schema": ref("schemas", schema)}, **dict.fromkeys(texts, _TEXT)}
    return {**answer("Done", *headers), "content": content}


def _either(first: str, second: str, *headers: str) -> dict[str, Any]:
    schemas = [ref("schemas", first), ref("schemas", second)]
    return {**answer("Done", *headers), "content": {JSON: {"schema": {"anyOf": schemas}}}}


def _created(*headers: str) -> dict[str, Any]:
    return {**_json("StoredObject", *headers), "description": "Created"}


def _empty(*headers: str) -> dict[str, Any]:
    return answer("Without a body", *headers)
