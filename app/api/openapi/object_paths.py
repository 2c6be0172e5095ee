"""The paths of one object, of the objects of a class, and of several classes."""

from __future__ import annotations

from typing import Any, Final

from app.api.models.common import ref
from app.api.models.reads import (
    ChangesParameters,
    DocumentParameters,
    ExportParameters,
    ImportParameters,
    SketchParameters,
)
from app.api.openapi.components import answer
from app.api.openapi.operations import (
    ALWAYS,
    CONDITIONAL,
    CREATING,
    TEXT,
    WITH_BODY,
    created_object,
    either,
    empty,
    in_json,
    operation,
    reads,
)
from app.http.negotiation import (
    EVENT_STREAM,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    NDJSON,
    SKETCH,
    UPDATE,
)

__all__ = ["object_paths"]

_RETRY_PARAMETERS: Final = ("idempotencyKey", "prefer")

_PATCH_SCHEMAS: Final = {
    MERGE_PATCH: "MergePatch",
    JSON_PATCH: "JsonPatch",
    JSON: "Patch",
    UPDATE: "OperatorPatch",
}

_READ_HEADERS: Final = (
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
_LISTING_HEADERS: Final = ("Cache-Control", "Preference-Applied", "Portolan-Partial")
_WRITE_HEADERS: Final = (
    "ETag",
    "Cache-Control",
    "Preference-Applied",
    "Portolan-Partial",
    "Portolan-Position",
    "Idempotency-Replayed",
)


def object_paths() -> dict[str, Any]:
    return {
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
    }


def _object() -> dict[str, Any]:
    write_parameters = ("fields", "ifMatch", "ifNoneMatch", "idempotencyKey", "prefer")
    read_parameters = ("fields", "maxAge", "ifMatch", "ifNoneMatch", "prefer")
    answers = {200: in_json("StoredObject", *_WRITE_HEADERS), 204: empty(*_WRITE_HEADERS)}
    problems = (*ALWAYS, *CONDITIONAL, 422)
    read_answers = {200: in_json("StoredObject", *_READ_HEADERS), 304: empty(*_READ_HEADERS)}
    summary = "Read an object, or some of its fields"
    return {
        **reads(
            ("getObject", "headObject"), summary, read_answers, read_parameters, (*ALWAYS, 412)
        ),
        "put": operation(
            "putObject",
            "Create or replace an object",
            {**answers, 201: created_object(*_WRITE_HEADERS)},
            write_parameters,
            (*problems, *CREATING),
            body={JSON: "Object"},
        ),
        "patch": operation(
            "patchObject",
            "Change an object, or create it",
            {**answers, 201: created_object(*_WRITE_HEADERS)},
            (*write_parameters, "upsert"),
            (*problems, *WITH_BODY),
            body=_PATCH_SCHEMAS,
        ),
        "delete": operation(
            "deleteObject", "Delete an object", answers, write_parameters, problems
        ),
    }


def _collection() -> dict[str, Any]:
    query = ("fields", "ids", "filter", "order", "limit", "cursor", "join", "aggregate", "count")
    parameters = (*query, "allowScan", "explain", "prefer")
    answers = {200: in_json("Listing", *_LISTING_HEADERS, "Link")}
    creation = {201: created_object(*_WRITE_HEADERS, "Location"), 200: in_json("Results")}
    problems = (*ALWAYS, *CREATING, 422)
    post = operation(
        "createObject", "Create one object, or many", creation, _RETRY_PARAMETERS, problems
    )
    objects = {"type": "array", "maxItems": 1000, "items": ref("schemas", "Object")}
    one_or_many = {"schema": {"oneOf": [ref("schemas", "Object"), objects]}}
    post["requestBody"] = {"required": True, "content": {JSON: one_or_many}}
    summary = "Find objects by ids, or by a query; conditions are also parameters: year.ge=1970"
    listing = reads(("listObjects", "headObjects"), summary, answers, parameters, (*ALWAYS, 422))
    return {**listing, "post": post, **_filtered_writes()}


def _filtered_writes() -> dict[str, Any]:
    parameters = ("filter", "all", "allowScan", "lastId", "dryRun", "idempotencyKey")
    answers, problems = {200: in_json("WriteSummary")}, (*ALWAYS, 422, 507)
    objects = "all objects that meet conditions, also given as parameters: year.ge=1970"
    patch_answers = {
        200: either("WriteSummary", "StoredObject", *_WRITE_HEADERS),
        201: created_object(*_WRITE_HEADERS, "Location"),
        204: empty(*_WRITE_HEADERS),
    }
    return {
        "patch": operation(
            "patchObjects",
            f"Change {objects}. With upsert: the object with values of a unique constraint",
            patch_answers,
            (*parameters, "upsert", "prefer"),
            (*problems, *WITH_BODY),
            body=_PATCH_SCHEMAS,
        ),
        "delete": operation("deleteObjects", f"Delete {objects}", answers, parameters, problems),
    }


def _query() -> dict[str, Any]:
    summary = "Find objects, or compute aggregates"
    answers = {200: in_json("Listing", *_LISTING_HEADERS)}
    problems = (*ALWAYS, *WITH_BODY, 422)
    return operation("queryObjects", summary, answers, ("prefer",), problems, body={JSON: "Query"})


def _batch() -> dict[str, Any]:
    answers, problems = {200: in_json("Results")}, (*ALWAYS, *WITH_BODY)
    body = {JSON: "BatchRequest"}
    return operation(
        "batch", "Execute many operations", answers, _RETRY_PARAMETERS, problems, body=body
    )


def _transaction() -> dict[str, Any]:
    summary = "Execute all operations if the read versions are still current, or none"
    answers = {200: in_json("TransactionResults", "Idempotency-Replayed")}
    problems = (*ALWAYS, *CREATING, *CONDITIONAL, 422)
    body = {JSON: "TransactionRequest"}
    return operation("transact", summary, answers, _RETRY_PARAMETERS, problems, body=body)


def _import() -> dict[str, Any]:
    answers, problems = {200: in_json("ImportSummary")}, (*ALWAYS, *CREATING)
    key = ("idempotencyKey",)
    post = operation("importObjects", "Put every line", answers, key, problems, ImportParameters)
    return post | {"requestBody": {"required": True, "content": {NDJSON: TEXT}}}


def _export() -> dict[str, Any]:
    answers = {200: {**answer("One object on each line"), "content": {NDJSON: TEXT}}}
    summary = "Stream every object in the order of ids"
    return reads(("exportObjects", "headExport"), summary, answers, query=ExportParameters)


def _changes() -> dict[str, Any]:
    summary = "Follow the change feed: a page of changes, or endless server-sent events"
    page = {200: in_json("Changes", "Cache-Control", texts=(EVENT_STREAM,))}
    parameters, problems = ("lastEventId",), (*ALWAYS, 410)
    return operation("followChanges", summary, page, parameters, problems, ChangesParameters)


def _sketch() -> dict[str, Any]:
    headers = ("ETag", "Cache-Control", "Portolan-Sketch-Time")
    answers = {200: in_json("ClientFilter", *headers, texts=(SKETCH,)), 304: empty(*headers)}
    summary = "Read the filter that tells a client which copies to revalidate"
    conditions, problems = ("ifNoneMatch",), (*ALWAYS, 412)
    names = "getSketch", "headSketch"
    return reads(names, summary, answers, conditions, problems, SketchParameters)


def _document() -> dict[str, Any]:
    headers = ("ETag", "Cache-Control")
    document = {**answer("Done", *headers), "content": {JSON: {"schema": {"type": "object"}}}}
    answers = {200: document, 304: empty(*headers)}
    summary = "Describe the classes of the database, in OpenAPI 3.1"
    names, conditions = ("getDocument", "headDocument"), ("ifMatch", "ifNoneMatch")
    return reads(names, summary, answers, conditions, (*ALWAYS, 412), DocumentParameters)
