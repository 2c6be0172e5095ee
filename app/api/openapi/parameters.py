"""The parameters of the data API: shared components, and those of parameter models."""

from __future__ import annotations

from typing import Any, Final

from app.api.models.common import ID_SCHEMA, NAME_SCHEMA
from app.api.openapi.grammar import COUNT
from app.api.routed_request import MAX_AGE_S
from app.http.validation import Parameters

__all__ = ["PARAMETERS", "parameters_of"]


def parameters_of(model: type[Parameters]) -> list[dict[str, Any]]:
    properties = model.model_json_schema()["properties"]
    return [_in_query(name, schema) for name, schema in properties.items()]


def _in_query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    schema = dict(schema)
    description = schema.pop("description")
    alternatives = [
        alternative for alternative in schema.pop("anyOf", ()) if alternative != {"type": "null"}
    ]
    schema = {**schema, **(alternatives[0] if alternatives else {})}
    # An absent parameter has no value, not even null.
    if schema.get("default", "") is None:
        del schema["default"]
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _parameter(
    name: str, location: str, schema: dict[str, Any], description: str
) -> dict[str, Any]:
    return {
        "name": name,
        "in": location,
        "required": location == "path",
        "schema": schema,
        "description": description,
    }


_TAGS: Final = {"type": "string", "pattern": '^(\\*|(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*)$'}
_FIELD_LIST: Final = {"type": "string", "pattern": "^[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*$"}
_FLAG: Final = {"enum": ["true", "false"]}
_HEXADECIMAL: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_KEY: Final = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!#-~][!-~]*$"}
_PREFER: Final = {
    "type": "string",
    "maxLength": 4_096,
    "pattern": "^[a-z-]+(=[a-z0-9.]+)?(, [a-z-]+(=[a-z0-9.]+)?)*$",
}
PARAMETERS: Final[dict[str, Any]] = {
    "lastEventId": _parameter(
        "Last-Event-ID",
        "header",
        {"type": "string", "maxLength": 512},
        "The last event that was received (HTML, section 9.2).",
    ),
    "database": _parameter("database", "path", NAME_SCHEMA, "Name of the database."),
    "class": _parameter("class", "path", NAME_SCHEMA, "Name of the class."),
    "run": _parameter(
        "run",
        "path",
        {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[0-9a-f]+$"},
        "Id of the run.",
    ),
    "flow": _parameter("flow", "path", _HEXADECIMAL, "Id of the message flow."),
    "view": _parameter("view", "path", _HEXADECIMAL, "Id of the incremental view."),
    "stream": _parameter("stream", "path", NAME_SCHEMA, "Name of the event stream."),
    "query": _parameter("query", "path", _HEXADECIMAL, "Id of the standing query."),
    "ticket": _parameter("ticket", "path", _HEXADECIMAL, "Ticket of the message."),
    "id": _parameter("id", "path", ID_SCHEMA, "Id of the object, percent-encoded once."),
    "fields": _parameter(
        "fields", "query", _FIELD_LIST, "Fields, sorted and once each; otherwise: no-store."
    ),
    "maxAge": _parameter(
        "max_age",
        "query",
        {"type": "integer", "minimum": 1, "maximum": MAX_AGE_S},
        "Seconds for which caches may keep the answer; Portolan-As-Of has its date.",
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
    "cursor": _parameter("after", "query", {"type": "string"}, "The cursor of the previous page."),
    "filter": _parameter("filter", "query", {"type": "string"}, "A filter as JSON."),
    "join": _parameter("join", "query", {"type": "string"}, "A join, or a list of them, as JSON."),
    "aggregate": _parameter("aggregate", "query", {"type": "string"}, "An aggregate as JSON."),
    "count": _parameter("count", "query", COUNT, "Whether all matching objects are counted."),
    "allowScan": _parameter("allow_scan", "query", _FLAG, "Whether all objects may be read."),
    "explain": _parameter("explain", "query", _FLAG, "Explain how the query was executed."),
    "lastId": _parameter("after", "query", ID_SCHEMA, "The last id that an answer reached."),
    "dryRun": _parameter("dry_run", "query", _FLAG, "Whether objects are only counted."),
    "all": _parameter("all", "query", _FLAG, "Whether all objects are written."),
    "upsert": _parameter("upsert", "query", _FLAG, "Whether a missing object is created."),
    "ifMatch": _parameter("If-Match", "header", _TAGS, "RFC 9110, section 13.1.1."),
    "ifNoneMatch": _parameter("If-None-Match", "header", _TAGS, "RFC 9110, section 13.1.2."),
    "idempotencyKey": _parameter("Idempotency-Key", "header", _KEY, "Makes a retry safe."),
    "prefer": _parameter("Prefer", "header", _PREFER, "RFC 7240."),
    "schemaVersion": _parameter(
        "Portolan-Schema",
        "header",
        {"type": "integer", "minimum": 1, "maximum": 2**31},
        "The version of the schema whose field names are used.",
    ),
}
