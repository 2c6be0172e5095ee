"""What the routes of the data API have in common in OpenAPI 3.1: schemas, parameters, headers."""

from __future__ import annotations

from typing import Any, Final

from app.api.routed_request import LONGEST_AGE_S
from app.http.problems import PROBLEM_TYPES
from mediator.query.filter_parser import OPERATORS

__all__ = ["COMPONENTS", "ref"]

_NAME: Final = {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,62}$"}
_ID: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "pattern": "^[^/\\u0000-\\u001f\\u007f-\\u009f]+$",
    "not": {"enum": [".", ".."]},
}
_OBJECT: Final = {
    "type": "object",
    "description": "The fields of the class, and the id.",
    "properties": {"id": _ID},
}
_STATUS: Final = {"type": "integer", "minimum": 200, "maximum": 599}


def ref(kind: str, name: str) -> dict[str, Any]:
    """Refer to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


def _open(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _one_of(*names: str) -> dict[str, Any]:
    """Describe an object that has one member, with one of some names."""
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {name: {} for name in names},
    }


_LEVEL: Final = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "array",
            "prefixItems": [{"type": "string"}, {"enum": ["asc", "desc"]}],
            "minItems": 2,
            "maxItems": 2,
        },
    ]
}
_PROBLEM: Final = _open(
    {
        "type": {"type": "string", "enum": [kind.uri for kind in PROBLEM_TYPES]},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "The id of the request."},
        "errors": {
            "type": "array",
            "items": _open(
                {"pointer": {"type": "string"}, "detail": {"type": "string"}},
                ["pointer", "detail"],
            ),
        },
    },
    ["type", "title", "status", "detail"],
)
_STORED: Final = {**_OBJECT, "required": ["id"]}
_SCHEMAS: Final[dict[str, Any]] = {
    "Problem": _PROBLEM,
    "Object": _OBJECT,
    "StoredObject": _STORED,
    "OperatorPatch": {
        "type": "object",
        "additionalProperties": {"type": "object", "minProperties": 1, "maxProperties": 1},
        "examples": [{"hits": {"inc": 1}, "tags": {"add_to_set": "x"}}],
    },
    "JsonPatch": {
        "type": "array",
        "maxItems": 1000,
        "items": _open(
            {
                "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
                "path": {"type": "string", "format": "json-pointer"},
                "from": {"type": "string", "format": "json-pointer"},
                "value": {},
            },
            ["op", "path"],
        ),
    },
    "Listing": _open(
        {
            "items": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Objects with their ids and what is joined to them, or groups.",
            },
            "next": {"type": ["string", "null"], "description": "Cursor of the next page."},
            "explain": {"type": "object"},
            "missing": {"type": "array", "items": {"type": "string"}},
        },
        ["items"],
    ),
    "Query": _closed(
        {
            "filter": ref("schemas", "Filter"),
            "order": {"type": "array", "maxItems": 8, "items": _LEVEL},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            "after": {"type": ["string", "null"]},
            "fields": {"type": "array", "items": {"type": "string"}},
            "join": {
                "oneOf": [
                    ref("schemas", "Join"),
                    {"type": "array", "maxItems": 8, "items": ref("schemas", "Join")},
                ]
            },
            "aggregate": _closed(
                {
                    "group": {"type": "array", "maxItems": 8, "items": {"type": "string"}},
                    "compute": {
                        "type": "object",
                        "maxProperties": 32,
                        "additionalProperties": _one_of("count", "sum", "avg", "min", "max"),
                    },
                    "filter": ref("schemas", "Filter"),
                },
                [],
            ),
            "allow_scan": {"type": "boolean"},
            "explain": {"type": "boolean"},
        },
        [],
    ),
    "Filter": {
        **_one_of(*OPERATORS),
        "description": "One operator with its operands: docs/queries.md.",
        "examples": [{"and": [{"eq": ["lastname", "Klose"]}, {"between": ["year", 1970, 1980]}]}],
    },
    "Join": _closed(
        {
            "as": {"type": "string"},
            "reference": {"type": "string"},
            "fields": {"type": "array", "items": {"type": "string"}},
        },
        ["as", "reference"],
    ),
    "BatchOperation": _closed(
        {
            "op": {"enum": ["get", "put", "patch", "update", "delete"]},
            "class": _NAME,
            "id": _ID,
            "body": {"type": ["object", "array"]},
            "if_match": {"type": "string"},
            "if_none_match": {"type": "string"},
        },
        ["op", "class", "id"],
    ),
    "Batch": _closed(
        {
            "operations": {
                "type": "array",
                "maxItems": 1000,
                "items": ref("schemas", "BatchOperation"),
            }
        },
        ["operations"],
    ),
    "Results": {
        "type": "array",
        "items": _open(
            {
                "status": _STATUS,
                "id": {"type": "string"},
                "etag": {"type": "string"},
                "position": {"type": "string"},
                "replayed": {"const": True},
                "partial": {"type": "array", "items": {"type": "string"}},
                "body": ref("schemas", "StoredObject"),
                "problem": ref("schemas", "Problem"),
            },
            ["status"],
        ),
    },
    "ImportSummary": _open(
        {
            "imported": {"type": "integer", "minimum": 0},
            "failed": {"type": "integer", "minimum": 0},
            "next": {"type": "integer", "description": "Lines done; skip them to go on."},
            "problems": {"type": "array", "maxItems": 100, "items": ref("schemas", "Problem")},
        },
        ["imported", "failed", "next", "problems"],
    ),
}


def _parameter(name: str, place: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": schema,
        "description": description,
    }


_TAGS: Final = {"type": "string", "pattern": '^(\\*|(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*)$'}
_FIELD_LIST: Final = {"type": "string", "pattern": "^[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*$"}
_KEY: Final = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!#-~][!-~]*$"}
_PREFER: Final = {"type": "string", "pattern": "^[a-z-]+(=[a-z0-9.]+)?(, [a-z-]+(=[a-z0-9.]+)?)*$"}
_PARAMETERS: Final[dict[str, Any]] = {
    "database": _parameter("database", "path", _NAME, "Name of the database."),
    "class": _parameter("class", "path", _NAME, "Name of the class."),
    "id": _parameter("id", "path", _ID, "Id of the object, percent-encoded once."),
    "fields": _parameter(
        "fields", "query", _FIELD_LIST, "Fields, sorted and once each; other spellings: no-store."
    ),
    "maxAge": _parameter(
        "max_age",
        "query",
        {"type": "integer", "minimum": 1, "maximum": LONGEST_AGE_S},
        "Seconds for which caches may keep the answer; it tells its date in Portolan-As-Of.",
    ),
    "ids": _parameter(
        "ids", "query", {"type": "string", "minLength": 1}, "Ids, percent-encoded in the list."
    ),
    "order": _parameter(
        "order",
        "query",
        {"type": "string", "pattern": "^-?[A-Za-z][A-Za-z0-9_.]*(,-?[A-Za-z][A-Za-z0-9_.]*)*$"},
        "Paths, from the first level to the last; - reverses one.",
    ),
    "limit": _parameter(
        "limit", "query", {"type": "integer", "minimum": 1, "maximum": 1000}, "Objects at most."
    ),
    "cursor": _parameter("after", "query", {"type": "string"}, "The cursor of the page before."),
    "filter": _parameter("filter", "query", {"type": "string"}, "A filter as JSON."),
    "allowScan": _parameter(
        "allow_scan", "query", {"enum": ["true", "false"]}, "Whether all objects may be read."
    ),
    "explain": _parameter(
        "explain", "query", {"enum": ["true", "false"]}, "Tell how the query was carried out."
    ),
    "afterId": _parameter("after", "query", _ID, "The last id that was received."),
    "skip": _parameter("skip", "query", {"type": "integer", "minimum": 0}, "Lines done already."),
    "ifMatch": _parameter("If-Match", "header", _TAGS, "RFC 9110, section 13.1.1."),
    "ifNoneMatch": _parameter("If-None-Match", "header", _TAGS, "RFC 9110, section 13.1.2."),
    "idempotencyKey": _parameter("Idempotency-Key", "header", _KEY, "Makes a retry safe."),
    "prefer": _parameter("Prefer", "header", _PREFER, "RFC 7240."),
}


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}}


_HEADERS: Final[dict[str, Any]] = {
    "ETag": _header("The version of the resource."),
    "Cache-Control": _header("RFC 9111."),
    "CDN-Cache-Control": _header("RFC 9213: for how long shared caches may keep the answer."),
    "Cache-Groups": _header("RFC 9875: tags by which caches forget the answer."),
    "Cache-Status": _header("RFC 9211: whether the sketch or a store answered."),
    "Portolan-Expires": _header("End of the answer's life in microseconds since 1970."),
    "Portolan-As-Of": _header("When the answer was true, in microseconds of the sketch's clock."),
    "Portolan-Sketch-Time": _header("When the bits of the filter held, likewise."),
    "Location": _header("The address of the new object."),
    "Portolan-Position": _header("Names the versions written, for Prefer: at-least."),
    "Portolan-Partial": _header("Groups that are still to be rolled forward."),
    "Preference-Applied": _header("RFC 7240, section 3."),
    "Idempotency-Replayed": _header("true: the answer of the first request."),
    "Server-Timing": _header("Milliseconds of each phase."),
    "X-Request-Id": _header("The id of the request."),
    "Retry-After": _header("Seconds."),
    "Accept-Patch": _header("RFC 5789, section 3.1."),
    "Allow": _header("RFC 9110, section 10.2.1."),
}

COMPONENTS: Final[dict[str, Any]] = {
    "schemas": _SCHEMAS,
    "parameters": _PARAMETERS,
    "headers": _HEADERS,
}
"""Merged into the components of the service's document."""
