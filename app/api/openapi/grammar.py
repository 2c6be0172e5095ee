"""Schemas of the bodies whose grammar the mediator parses."""

from __future__ import annotations

from typing import Any, Final

from app.api.models.common import ID_SCHEMA, NAME_SCHEMA, ref
from mediator.event_streams.batch import MOST_AT_ONCE
from mediator.event_streams.declaration import (
    LONGEST_RETENTION_S,
    MOST_ATTRIBUTES,
    MOST_TUPLES,
    SHORTEST_RETENTION_S,
    TYPES,
)
from mediator.flows.parser import LONGEST_LATENCY_S, MOST_OPERATORS, OBJECTIVES, OPERATOR_NAMES
from mediator.flows.service import MOST_MESSAGES
from mediator.model.query import CountMode
from mediator.query.filter_parser import OPERATORS
from mediator.schema.ids import FIELD_NAME
from mediator.standing.parser import LONGEST_WINDOW_S, MOST_RELATIONS
from mediator.standing.query_parser import LONGEST_LATENESS_S, MOST_LAG
from mediator.standing.query_parser import LONGEST_NAME as LONGEST_QUERY_NAME
from mediator.views.parser import LONGEST_NAME, MOST_COLUMNS, MOST_JOINS, MOST_KEYS

__all__ = ["COUNT", "GRAMMAR"]


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


def _one_of(*names: str) -> dict[str, Any]:
    """Describe an object that has one member, with one of some names."""
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {name: {} for name in names},
    }


_AGGREGATE: Final = _closed(
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
)

COUNT: Final = {"enum": [mode.value for mode in CountMode]}
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
_ATTRIBUTE: Final = {"type": "string", "pattern": f"^{FIELD_NAME.pattern}$"}
_RELATIONS: Final = {"minItems": 2, "maxItems": MOST_RELATIONS}
_SOURCE: Final = {
    "type": "object",
    "properties": {"stream": {"type": "string"}, "class": {"type": "string"}},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}


def _into(target: str, values: str) -> dict[str, Any]:
    """Describe what results of a standing query go into, a stream or a class."""
    taken = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": _ATTRIBUTE,
        "additionalProperties": {"type": "string"},
        "description": values,
    }
    return _closed({target: NAME_SCHEMA, "values": taken}, [target, "values"])


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
            "aggregate": _AGGREGATE,
            "count": COUNT,
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
            "class": {
                "type": "string",
                "description": "The class that refers, for a join in reverse.",
            },
            "reference": {"type": "string"},
            "filter": ref("schemas", "Filter"),
            "order": {"type": "array", "maxItems": 8, "items": _LEVEL},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "fields": {"type": "array", "items": {"type": "string"}},
        },
        ["as", "reference"],
    ),
    "ViewJoin": _closed(
        {
            "as": {"type": "string"},
            "reference": {"type": "string"},
            "class": {"type": "string"},
            "on": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": MOST_KEYS,
                "additionalProperties": {"type": "string"},
                "description": "Fields of the class, with the paths whose values they equal.",
            },
            "filter": ref("schemas", "Filter"),
            "anti": {"type": "boolean"},
        },
        [],
    ),
    "NewIncrementalView": _closed(
        {
            "name": {"type": "string", "maxLength": LONGEST_NAME},
            "class": {"type": "string"},
            "join": {
                "oneOf": [
                    ref("schemas", "ViewJoin"),
                    {"type": "array", "maxItems": MOST_JOINS, "items": ref("schemas", "ViewJoin")},
                ]
            },
            "filter": ref("schemas", "Filter"),
            "fields": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_COLUMNS,
                "items": {"type": "string"},
            },
            "aggregate": _AGGREGATE,
        },
        ["class"],
    ),
    "NewEventStream": _closed(
        {
            "name": NAME_SCHEMA,
            "attributes": {
                "oneOf": [
                    {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MOST_ATTRIBUTES,
                        "uniqueItems": True,
                        "items": _ATTRIBUTE,
                    },
                    {
                        "type": "object",
                        "minProperties": 1,
                        "maxProperties": MOST_ATTRIBUTES,
                        "propertyNames": _ATTRIBUTE,
                        "additionalProperties": {"enum": [*TYPES, None]},
                    },
                ]
            },
            "retention_s": {
                "type": "number",
                "minimum": SHORTEST_RETENTION_S,
                "maximum": LONGEST_RETENTION_S,
            },
            "most_tuples": {"type": "integer", "minimum": 1, "maximum": MOST_TUPLES},
        },
        ["name", "attributes"],
    ),
    "NewTuple": _closed(
        {
            "time_s": {"type": "number", "minimum": 0},
            "values": {
                "type": "object",
                "maxProperties": MOST_ATTRIBUTES,
                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            },
        },
        ["time_s", "values"],
    ),
    "NewTuples": _closed(
        {
            "tuples": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_AT_ONCE,
                "items": ref("schemas", "NewTuple"),
            }
        },
        ["tuples"],
    ),
    "NewStandingQuery": _closed(
        {
            "name": {"type": "string", "maxLength": LONGEST_QUERY_NAME},
            "relations": {
                "oneOf": [
                    {**_RELATIONS, "type": "array", "items": {"type": "string"}},
                    {
                        "type": "object",
                        "minProperties": 2,
                        "maxProperties": MOST_RELATIONS,
                        "additionalProperties": _SOURCE,
                    },
                ],
                "description": "Names of event streams; or streams and classes, by alias.",
            },
            "predicates": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "array",
                    "minItems": 2,
                    "maxItems": 2,
                    "items": {"type": "string"},
                },
                "description": "Pairs of attributes that are equal.",
            },
            "window_s": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_WINDOW_S},
            "lateness_s": {"type": "number", "minimum": 0, "maximum": LONGEST_LATENESS_S},
            "max_lag": {"type": "integer", "minimum": 1, "maximum": MOST_LAG},
            "into": {
                "oneOf": [
                    _into("stream", "Attributes of the stream, by what they are taken from."),
                    _into("class", "Fields of the class, by what they are taken from."),
                ],
                "description": "Where results go, too.",
            },
        },
        ["relations", "predicates", "window_s"],
    ),
    "NewMessageFlow": _closed(
        {
            "name": {"type": "string", "maxLength": 100},
            "plan": {
                "type": "array",
                "minItems": 2,
                "maxItems": MOST_OPERATORS,
                "items": {
                    "type": "object",
                    "properties": {"op": {"enum": OPERATOR_NAMES}},
                    "required": ["op"],
                },
                "description": "Operators in order: docs/message-flows.md.",
            },
            "latency_s": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_LATENCY_S},
            "ordered": {"type": "boolean"},
            "objective": {"enum": OBJECTIVES},
            "results": _closed({"webhook": {"type": "string", "format": "uri"}}, ["webhook"]),
        },
        ["plan", "latency_s"],
    ),
    "NewMessages": _closed(
        {
            "messages": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_MESSAGES,
                "items": {"type": "object"},
            }
        },
        ["messages"],
    ),
}
