"""JSON Schemas of the bodies that the mediator parses."""

from __future__ import annotations

from typing import Any, Final

from app.api.models.common import ID_SCHEMA, NAME_SCHEMA, ref
from mediator.event_streams.batch import MAX_BATCH_TUPLES
from mediator.event_streams.declaration import (
    MAX_ATTRIBUTES,
    MAX_RETENTION_S,
    MAX_TUPLES,
    MIN_RETENTION_S,
    TYPES,
)
from mediator.flows.parser import MAX_LATENCY_S, MAX_OPERATORS, OBJECTIVES, OPERATOR_NAMES
from mediator.flows.service import MAX_MESSAGES
from mediator.model.query import CountMode
from mediator.query.filter_parser import OPERATORS
from mediator.schema.ids import FIELD_NAME
from mediator.standing.parser import MAX_RELATIONS, MAX_WINDOW_S
from mediator.standing.query_parser import MAX_LAG_LIMIT, MAX_LATENESS_S
from mediator.standing.query_parser import MAX_NAME_LENGTH as MAX_QUERY_NAME_LENGTH
from mediator.views.parser import MAX_COLUMNS, MAX_JOINS, MAX_KEYS, MAX_NAME_LENGTH

__all__ = ["COUNT", "GRAMMAR", "one_of"]


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


def _array(items: dict[str, Any], maximum: int | None = None, minimum: int = 0) -> dict[str, Any]:
    bounds = {"minItems": minimum or None, "maxItems": maximum}
    keywords = {name: bound for name, bound in bounds.items() if bound is not None}
    return {"type": "array", **keywords, "items": items}


def one_of(properties: dict[str, Any]) -> dict[str, Any]:
    """Describe an object that has exactly one of these members."""
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": properties,
    }


_TEXT: Final = {"type": "string"}
_OPERATOR: Final = {
    "type": "object",
    "properties": {"op": {"enum": OPERATOR_NAMES}},
    "required": ["op"],
}
_FUNCTIONS: Final = ("count", "sum", "avg", "min", "max")
_AGGREGATE: Final = _closed(
    {
        "group": _array(_TEXT, 8),
        "compute": {
            "type": "object",
            "maxProperties": 32,
            "additionalProperties": one_of({name: {} for name in _FUNCTIONS}),
        },
        "filter": ref("schemas", "Filter"),
    },
    [],
)

COUNT: Final = {"enum": [mode.value for mode in CountMode]}
_LEVEL: Final = {
    "oneOf": [
        _TEXT,
        {
            "type": "array",
            "prefixItems": [_TEXT, {"enum": ["asc", "desc"]}],
            "minItems": 2,
            "maxItems": 2,
        },
    ]
}
_ATTRIBUTE: Final = {"type": "string", "pattern": f"^{FIELD_NAME.pattern}$"}
_SOURCE: Final = one_of({"stream": _TEXT, "class": _TEXT})


def _into(target: str, values: str) -> dict[str, Any]:
    """Describe the target of a standing query's results, a stream or a class."""
    mapping = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": _ATTRIBUTE,
        "additionalProperties": _TEXT,
        "description": values,
    }
    return _closed({target: NAME_SCHEMA, "values": mapping}, [target, "values"])


GRAMMAR: Final[dict[str, Any]] = {
    "Object": {
        "type": "object",
        "description": "The fields of the class, and the id.",
        "properties": {"id": ID_SCHEMA},
    },
    "OperatorPatch": {
        "type": "object",
        "additionalProperties": {"type": "object", "minProperties": 1, "maxProperties": 1},
        "examples": [{"hits": {"inc": 1}, "tags": {"add_to_set": "x"}}],
    },
    "JsonPatch": {
        "type": "array",
        "maxItems": 1000,
        "items": {
            "type": "object",
            "properties": {
                "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
                "path": {"type": "string", "format": "json-pointer"},
                "from": {"type": "string", "format": "json-pointer"},
                "value": {},
            },
            "required": ["op", "path"],
        },
    },
    "MergePatch": {
        "type": "object",
        "description": "Fields with their new values; null removes one (RFC 7396).",
    },
    "Patch": {"oneOf": [ref("schemas", "MergePatch"), ref("schemas", "JsonPatch")]},
    "Query": _closed(
        {
            "filter": ref("schemas", "Filter"),
            "order": _array(_LEVEL, 8),
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            "after": {"type": ["string", "null"]},
            "fields": _array(_TEXT),
            "join": {
                "oneOf": [
                    ref("schemas", "Join"),
                    _array(ref("schemas", "Join"), 8),
                ]
            },
            "aggregate": _AGGREGATE,
            "count": COUNT,
            "allow_scan": {"type": "boolean"},
            "explain": {"type": "boolean"},
        },
        [],
    ),
    "Filter": {
        **one_of({name: {} for name in OPERATORS}),
        "description": "One operator with its operands: docs/queries.md.",
        "examples": [{"and": [{"eq": ["lastname", "Klose"]}, {"between": ["year", 1970, 1980]}]}],
    },
    "Join": _closed(
        {
            "as": _TEXT,
            "class": {
                "type": "string",
                "description": "The class that refers, for a join in reverse.",
            },
            "reference": _TEXT,
            "filter": ref("schemas", "Filter"),
            "order": _array(_LEVEL, 8),
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "fields": _array(_TEXT),
        },
        ["as", "reference"],
    ),
    "ViewJoin": _closed(
        {
            "as": _TEXT,
            "reference": _TEXT,
            "class": _TEXT,
            "on": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": MAX_KEYS,
                "additionalProperties": _TEXT,
                "description": "Fields of the class, with the paths whose values they equal.",
            },
            "filter": ref("schemas", "Filter"),
            "anti": {"type": "boolean"},
        },
        [],
    ),
    "NewIncrementalView": _closed(
        {
            "name": {"type": "string", "maxLength": MAX_NAME_LENGTH},
            "class": _TEXT,
            "join": {
                "oneOf": [
                    ref("schemas", "ViewJoin"),
                    _array(ref("schemas", "ViewJoin"), MAX_JOINS),
                ]
            },
            "filter": ref("schemas", "Filter"),
            "fields": _array(_TEXT, MAX_COLUMNS, 1),
            "aggregate": _AGGREGATE,
        },
        ["class"],
    ),
    "NewEventStream": _closed(
        {
            "name": NAME_SCHEMA,
            "attributes": {
                "oneOf": [
                    {**_array(_ATTRIBUTE, MAX_ATTRIBUTES, 1), "uniqueItems": True},
                    {
                        "type": "object",
                        "minProperties": 1,
                        "maxProperties": MAX_ATTRIBUTES,
                        "propertyNames": _ATTRIBUTE,
                        "additionalProperties": {"enum": [*TYPES, None]},
                    },
                ]
            },
            "retention_s": {
                "type": "number",
                "minimum": MIN_RETENTION_S,
                "maximum": MAX_RETENTION_S,
            },
            "most_tuples": {"type": "integer", "minimum": 1, "maximum": MAX_TUPLES},
        },
        ["name", "attributes"],
    ),
    "NewTuple": _closed(
        {
            "time_s": {"type": "number", "minimum": 0},
            "values": {
                "type": "object",
                "maxProperties": MAX_ATTRIBUTES,
                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            },
        },
        ["time_s", "values"],
    ),
    "NewTuples": _closed(
        {"tuples": _array(ref("schemas", "NewTuple"), MAX_BATCH_TUPLES, 1)},
        ["tuples"],
    ),
    "NewStandingQuery": _closed(
        {
            "name": {"type": "string", "maxLength": MAX_QUERY_NAME_LENGTH},
            "relations": {
                "oneOf": [
                    _array(_TEXT, MAX_RELATIONS, 2),
                    {
                        "type": "object",
                        "minProperties": 2,
                        "maxProperties": MAX_RELATIONS,
                        "additionalProperties": _SOURCE,
                    },
                ],
                "description": "Names of event streams; or streams and classes, by alias.",
            },
            "predicates": {
                **_array(_array(_TEXT, 2, 2), minimum=1),
                "description": "Pairs of attributes that are equal.",
            },
            "window_s": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_WINDOW_S},
            "lateness_s": {"type": "number", "minimum": 0, "maximum": MAX_LATENESS_S},
            "max_lag": {"type": "integer", "minimum": 1, "maximum": MAX_LAG_LIMIT},
            "into": {
                "oneOf": [
                    _into("stream", "The attribute of a result for each attribute of the stream."),
                    _into("class", "The attribute of a result for each field of the class."),
                ],
                "description": "An additional target of results.",
            },
        },
        ["relations", "predicates", "window_s"],
    ),
    "NewMessageFlow": _closed(
        {
            "name": {"type": "string", "maxLength": 100},
            "plan": {
                **_array(_OPERATOR, MAX_OPERATORS, 2),
                "description": "Operators in order: docs/message-flows.md.",
            },
            "latency_s": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_LATENCY_S},
            "ordered": {"type": "boolean"},
            "objective": {"enum": OBJECTIVES},
            "results": _closed({"webhook": {"type": "string", "format": "uri"}}, ["webhook"]),
        },
        ["plan", "latency_s"],
    ),
    "NewMessages": _closed(
        {"messages": _array({"type": "object"}, MAX_MESSAGES, 1)},
        ["messages"],
    ),
}
