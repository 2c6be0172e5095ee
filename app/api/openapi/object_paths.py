"""The paths of objects: of one, of those of a class, and of several classes."""

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

_ON_RETRY: Final = ("idempotencyKey", "prefer")

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
    written = ("fields", "ifMatch", "ifNoneMatch", "idempotencyKey", "prefer")
    read = ("fields", "maxAge", "ifMatch", "ifNoneMatch", "prefer")
    changed = {200: in_json("StoredObject", *_WRITTEN), 204: empty(*_WRITTEN)}
    failing = (*ALWAYS, *CONDITIONAL, 422)
    shown = {200: in_json("StoredObject", *_READ), 304: empty(*_READ)}
    summary = "Read an object, or some of its fields"
    return {
        **reads(("getObject", "headObject"), summary, shown, read, (*ALWAYS, 412)),
        "put": operation(
            "putObject",
            "Make an object what the body says",
            {**changed, 201: created_object(*_WRITTEN)},
            written,
            (*failing, *CREATING),
            body={JSON: "Object"},
        ),
        "patch": operation(
            "patchObject",
            "Change an object, or create it",
            {**changed, 201: created_object(*_WRITTEN)},
            (*written, "upsert"),
            (*failing, *WITH_BODY),
            body=_PATCHES,
        ),
        "delete": operation("deleteObject", "Delete an object", changed, written, failing),
    }


def _collection() -> dict[str, Any]:
    query = ("fields", "ids", "filter", "order", "limit", "cursor", "join", "aggregate", "count")
    read = (*query, "allowScan", "explain", "prefer")
    shown = {200: in_json("Listing", *_FOUND, "Link")}
    created = {201: created_object(*_WRITTEN, "Location"), 200: in_json("Results")}
    failing = (*ALWAYS, *CREATING, 422)
    post = operation("createObject", "Create one object, or many", created, _ON_RETRY, failing)
    objects = {"type": "array", "maxItems": 1000, "items": ref("schemas", "Object")}
    one_or_many = {"schema": {"oneOf": [ref("schemas", "Object"), objects]}}
    post["requestBody"] = {"required": True, "content": {JSON: one_or_many}}
    summary = "Find objects by their ids, or by a query; paths are parameters too: year.ge=1970"
    found = reads(("listObjects", "headObjects"), summary, shown, read, (*ALWAYS, 422))
    return {**found, "post": post, **_filtered_writes()}


def _filtered_writes() -> dict[str, Any]:
    named = ("filter", "all", "allowScan", "lastId", "dryRun", "idempotencyKey")
    done, failing = {200: in_json("WriteSummary")}, (*ALWAYS, 422, 507)
    every = "all objects that meet conditions; paths are parameters too: year.ge=1970"
    written = {
        200: either("WriteSummary", "StoredObject", *_WRITTEN),
        201: created_object(*_WRITTEN, "Location"),
        204: empty(*_WRITTEN),
    }
    return {
        "patch": operation(
            "patchObjects",
            f"Change {every}. With upsert: the one that has values of a unique constraint",
            written,
            (*named, "upsert", "prefer"),
            (*failing, *WITH_BODY),
            body=_PATCHES,
        ),
        "delete": operation("deleteObjects", f"Delete {every}", done, named, failing),
    }


def _query() -> dict[str, Any]:
    summary = "Find objects, or compute aggregates"
    found = {200: in_json("Listing", *_FOUND)}
    failing = (*ALWAYS, *WITH_BODY, 422)
    return operation("queryObjects", summary, found, ("prefer",), failing, body={JSON: "Query"})


def _batch() -> dict[str, Any]:
    done, failing = {200: in_json("Results")}, (*ALWAYS, *WITH_BODY)
    body = {JSON: "BatchRequest"}
    return operation("batch", "Do many operations", done, _ON_RETRY, failing, body=body)


def _transaction() -> dict[str, Any]:
    summary = "Do all of some operations if what was read still stands, or nothing"
    done = {200: in_json("TransactionResults", "Idempotency-Replayed")}
    failing = (*ALWAYS, *CREATING, *CONDITIONAL, 422)
    body = {JSON: "TransactionRequest"}
    return operation("transact", summary, done, _ON_RETRY, failing, body=body)


def _import() -> dict[str, Any]:
    done, failing = {200: in_json("ImportSummary")}, (*ALWAYS, *CREATING)
    key = ("idempotencyKey",)
    post = operation("importObjects", "Put every line", done, key, failing, ImportParameters)
    return post | {"requestBody": {"required": True, "content": {NDJSON: TEXT}}}


def _export() -> dict[str, Any]:
    shown = {200: {**answer("One object on each line"), "content": {NDJSON: TEXT}}}
    summary = "Stream every object in the order of ids"
    return reads(("exportObjects", "headExport"), summary, shown, query=ExportParameters)


def _changes() -> dict[str, Any]:
    summary = "Follow the change feed: a page of changes, or server-sent events without end"
    page = {200: in_json("Changes", "Cache-Control", texts=(EVENT_STREAM,))}
    resumed, failing = ("lastEventId",), (*ALWAYS, 410)
    return operation("followChanges", summary, page, resumed, failing, ChangesParameters)


def _sketch() -> dict[str, Any]:
    headers = ("ETag", "Cache-Control", "Portolan-Sketch-Time")
    shown = {200: in_json("ClientFilter", *headers, texts=(SKETCH,)), 304: empty(*headers)}
    summary = "Read the filter by which a client knows which copies to revalidate"
    conditions, failing = ("ifNoneMatch",), (*ALWAYS, 412)
    names = "getSketch", "headSketch"
    return reads(names, summary, shown, conditions, failing, SketchParameters)


def _document() -> dict[str, Any]:
    headers = ("ETag", "Cache-Control")
    document = {**answer("Done", *headers), "content": {JSON: {"schema": {"type": "object"}}}}
    shown = {200: document, 304: empty(*headers)}
    summary = "Describe the classes of the database, in OpenAPI 3.1"
    names, conditions = ("getDocument", "headDocument"), ("ifMatch", "ifNoneMatch")
    return reads(names, summary, shown, conditions, (*ALWAYS, 412), DocumentParameters)
