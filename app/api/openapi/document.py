"""The paths of the data API in OpenAPI 3.1: their parameters, bodies and answers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from app.api.models.jobs import ResultParameters, RunListParameters, SubmissionParameters
from app.api.models.reads import (
    ChangesParameters,
    ExportParameters,
    ImportParameters,
    SketchParameters,
)
from app.api.openapi.components import parameters_of, ref
from app.http.negotiation import (
    EVENT_STREAM,
    FILES,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    NDJSON,
    SKETCH,
    UPDATE,
)
from app.http.problems import PROBLEM_JSON
from app.http.validation import Parameters

__all__ = ["data_paths"]

_TAG: Final = "data"
_ALWAYS: Final = (400, 401, 403, 404, 406, 409, 429, 500, 503)
_WITH_BODY: Final = (413, 415)
_CREATING: Final = (*_WITH_BODY, 507)
_CONDITIONAL: Final = (412, 428)
_CLASS: Final = ("database", "class")
_OBJECT: Final = ("database", "class", "id")
_RUN: Final = ("database", "run")


def data_paths() -> dict[str, Any]:
    """Return the paths of the data API."""
    return {
        "/v1/{database}/{class}/{id}": _path(_OBJECT, _object()),
        "/v1/{database}/{class}": _path(_CLASS, _collection()),
        "/v1/{database}/{class}/query": _path(_CLASS, {"post": _query()}),
        "/v1/{database}/{class}/import": _path(_CLASS, {"post": _import()}),
        "/v1/{database}/{class}/export": _path(_CLASS, _export()),
        "/v1/{database}/changes": _path(("database",), {"get": _changes()}),
        "/v1/{database}/sketch": _path(("database",), _sketch()),
        "/v1/{database}/batch": _path(("database",), {"post": _batch()}),
        "/v1/{database}/transactions": _path(("database",), {"post": _transaction()}),
        "/v1/{database}/jobs": _path(("database",), _jobs()),
        "/v1/{database}/jobs/{run}": _path(_RUN, _run()),
        "/v1/{database}/jobs/{run}/resume": _path(_RUN, {"post": _resume()}),
        "/v1/{database}/jobs/{run}/results": _path(_RUN, {"get": _results()}),
    }


def _path(parameters: tuple[str, ...], operations: dict[str, Any]) -> dict[str, Any]:
    options = _operation("options", "Say what can be done here", (), {204: _empty("Allow")})
    return {"parameters": _parameters(parameters), **operations, "options": options}


def _object() -> dict[str, Any]:
    written = ("fields", "ifMatch", "ifNoneMatch", "idempotencyKey", "prefer")
    read = ("fields", "maxAge", "ifMatch", "ifNoneMatch", "prefer")
    changed = {200: _json("StoredObject", *_WRITTEN), 204: _empty(*_WRITTEN)}
    failing = (*_ALWAYS, *_CONDITIONAL, 422)
    with_body = (*failing, *_WITH_BODY)
    patch = _operation("patchObject", "Change an object", written, changed, with_body)
    patch["requestBody"] = _body(
        {MERGE_PATCH: "Object", JSON_PATCH: "JsonPatch", UPDATE: "OperatorPatch"}
    )
    created = {**changed, 201: _created(*_WRITTEN)}
    summary = "Make an object what the body says"
    put = _operation("putObject", summary, written, created, (*failing, *_CREATING))
    put["requestBody"] = _body({JSON: "Object"})
    shown = {200: _json("StoredObject", *_READ), 304: _empty(*_READ)}
    summary = "Read an object, or some of its fields"
    return {
        "get": _operation("getObject", summary, read, shown, (*_ALWAYS, 412)),
        "head": _operation("headObject", summary, read, _headless(shown), (*_ALWAYS, 412)),
        "put": put,
        "patch": patch,
        "delete": _operation("deleteObject", "Delete an object", written, changed, failing),
    }


def _collection() -> dict[str, Any]:
    read = ("fields", "ids", "filter", "order", "limit", "cursor", "allowScan", "explain", "prefer")
    shown = {200: _json("Listing", *_FOUND)}
    created = {201: _created(*_WRITTEN, "Location"), 200: _json("Results")}
    failing = (*_ALWAYS, *_CREATING, 422)
    preferences = ("idempotencyKey", "prefer")
    post = _operation("createObject", "Create one object, or many", preferences, created, failing)
    one_or_many = {
        "oneOf": [
            ref("schemas", "Object"),
            {"type": "array", "maxItems": 1000, "items": ref("schemas", "Object")},
        ]
    }
    post["requestBody"] = {"required": True, "content": {JSON: {"schema": one_or_many}}}
    summary = "Find objects by their ids, or by a query; paths are parameters too: year.ge=1970"
    return {
        "get": _operation("listObjects", summary, read, shown, (*_ALWAYS, 422)),
        "head": _operation("headObjects", summary, read, _headless(shown), (*_ALWAYS, 422)),
        "post": post,
    }


def _query() -> dict[str, Any]:
    found = {200: _json("Listing", *_FOUND)}
    failing = (*_ALWAYS, *_WITH_BODY, 422)
    post = _operation(
        "queryObjects", "Find objects, or compute aggregates", ("prefer",), found, failing
    )
    return post | {"requestBody": _body({JSON: "Query"})}


def _batch() -> dict[str, Any]:
    done = {200: _json("Results")}
    preferences = ("idempotencyKey", "prefer")
    post = _operation("batch", "Do many operations", preferences, done, (*_ALWAYS, *_WITH_BODY))
    return post | {"requestBody": _body({JSON: "BatchRequest"})}


def _transaction() -> dict[str, Any]:
    done = {200: _json("TransactionResults", "Idempotency-Replayed")}
    preferences = ("idempotencyKey", "prefer")
    failing = (*_ALWAYS, *_CREATING, *_CONDITIONAL, 422)
    summary = "Do all of some operations if what was read still stands, or nothing"
    post = _operation("transact", summary, preferences, done, failing)
    return post | {"requestBody": _body({JSON: "TransactionRequest"})}


def _import() -> dict[str, Any]:
    done = {200: _json("ImportSummary")}
    failing = (*_ALWAYS, *_CREATING)
    post = _operation(
        "importObjects", "Put every line", ("idempotencyKey",), done, failing, ImportParameters
    )
    text = {"schema": {"type": "string"}}
    return post | {"requestBody": {"required": True, "content": {NDJSON: text}}}


def _export() -> dict[str, Any]:
    lines = {"content": {NDJSON: {"schema": {"type": "string"}}}}
    shown = {200: {**_answer("One object on each line"), **lines}}
    summary = "Stream every object in the order of ids"
    return {
        "get": _operation("exportObjects", summary, (), shown, _ALWAYS, ExportParameters),
        "head": _operation("headExport", summary, (), _headless(shown), _ALWAYS, ExportParameters),
    }


def _changes() -> dict[str, Any]:
    events = {EVENT_STREAM: {"schema": {"type": "string"}}}
    page = _json("Changes", "Cache-Control")
    page["content"] = page["content"] | events
    summary = "Follow the change feed: a page of changes, or server-sent events without end"
    return _operation(
        "followChanges",
        summary,
        ("lastEventId",),
        {200: page},
        (*_ALWAYS, 410),
        ChangesParameters,
    )


def _sketch() -> dict[str, Any]:
    headers = ("ETag", "Cache-Control", "Portolan-Sketch-Time")
    filter_ = _json("ClientFilter", *headers)
    filter_["content"] = filter_["content"] | {SKETCH: {"schema": {"type": "string"}}}
    shown = {200: filter_, 304: _empty(*headers)}
    conditions = ("ifNoneMatch",)
    summary = "Read the filter by which a client knows which copies to revalidate"
    problems = (*_ALWAYS, 412)
    return {
        "get": _operation("getSketch", summary, conditions, shown, problems, SketchParameters),
        "head": _operation(
            "headSketch", summary, conditions, _headless(shown), problems, SketchParameters
        ),
    }


def _jobs() -> dict[str, Any]:
    accepted = {**_json("Run", "Location", "Idempotency-Replayed"), "description": "Written down"}
    failing = (*_ALWAYS, *_CREATING, 422)
    submit = _operation(
        "submitJob",
        "Submit an analytic job",
        ("idempotencyKey",),
        {202: accepted},
        failing,
        SubmissionParameters,
    )
    submit["requestBody"] = _body({JSON: "Job"})
    listed = {200: _json("Runs")}
    return {
        "post": submit,
        "get": _operation(
            "listRuns", "List runs, newest first", (), listed, _ALWAYS, RunListParameters
        ),
    }


def _run() -> dict[str, Any]:
    shown = _json("Run")
    followed = {EVENT_STREAM: {"schema": {"type": "string"}}}
    shown["content"] = shown["content"] | followed
    cancelled = {200: _json("Run"), 202: _json("Run")}
    summary = "Show a run, or follow it by server-sent events until it has ended"
    return {
        "get": _operation("getRun", summary, (), {200: shown}, _ALWAYS),
        "delete": _operation("cancelRun", "Cancel a run", (), cancelled, _ALWAYS),
    }


def _resume() -> dict[str, Any]:
    summary = "Go on with a run that failed or was cancelled"
    return _operation("resumeRun", summary, (), {202: _json("Run")}, (*_ALWAYS, 507))


def _results() -> dict[str, Any]:
    page = _json("RunRows")
    files = {type_: {"schema": {"type": "string"}} for type_ in FILES}
    page["content"] = page["content"] | files
    summary = "Read the result of a run: pages of JSON, or the whole as a file, by Accept"
    failing = (*_ALWAYS, 410)
    return _operation("getResults", summary, (), {200: page}, failing, ResultParameters)


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


def _operation(
    name: str,
    summary: str,
    parameters: tuple[str, ...],
    answers: dict[int, Any],
    problems: tuple[int, ...] = (400, 404),
    query: type[Parameters] | None = None,
) -> dict[str, Any]:
    responses = answers | {status: _problem(status) for status in problems}
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": [_TAG],
        "parameters": [*_parameters(parameters), *(parameters_of(query) if query else ())],
        "responses": {str(status): responses[status] for status in sorted(responses)},
    }
    return operation if name == "options" else {"operationId": name, **operation}


def _parameters(names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [ref("parameters", name) for name in names]


def _answer(description: str, *headers: str) -> dict[str, Any]:
    named = (*headers, "Server-Timing", "X-Request-Id")
    return {"description": description, "headers": {name: ref("headers", name) for name in named}}


def _json(schema: str, *headers: str) -> dict[str, Any]:
    content = {JSON: {"schema": ref("schemas", schema)}}
    return {**_answer("Done", *headers), "content": content}


def _created(*headers: str) -> dict[str, Any]:
    return {**_json("StoredObject", *headers), "description": "Created"}


def _empty(*headers: str) -> dict[str, Any]:
    return _answer("Without a body", *headers)


def _problem(status: int) -> dict[str, Any]:
    again = ("Retry-After",)
    headers = {405: ("Allow",), 415: ("Accept-Patch",), 429: again, 503: again}.get(status, ())
    content = {PROBLEM_JSON: {"schema": ref("schemas", "Problem")}}
    return {**_answer(HTTPStatus(status).phrase, *headers), "content": content}


def _headless(answers: dict[int, Any]) -> dict[int, Any]:
    return {
        status: {name: part for name, part in answer.items() if name != "content"}
        for status, answer in answers.items()
    }


def _body(schemas: dict[str, str]) -> dict[str, Any]:
    content = {type_: {"schema": ref("schemas", name)} for type_, name in schemas.items()}
    return {"required": True, "content": content}
