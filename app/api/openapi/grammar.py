"""Bodies whose grammar the mediator parses, in OpenAPI 3.1: objects, patches, filters, queries."""

from __future__ import annotations

from typing import Any, Final

from app.api.models.common import ID_SCHEMA
from mediator.query.filter_parser import OPERATORS

__all__ = ["GRAMMAR", "ref"]


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
}
