"""The change feed in OpenAPI 3.1: its parameters, and what a page of it looks like."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["FEED_PARAMETERS", "FEED_SCHEMAS"]

_POSITION: Final = {"type": "string", "maxLength": 512}
_FIELDS: Final = {"type": ["object", "null"], "additionalProperties": True}


def _number(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _in_query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}


FEED_PARAMETERS: Final[dict[str, Any]] = {
    "ofClass": _in_query(
        "class", {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,62}$"}, "Changes of one class."
    ),
    "afterPosition": _in_query("after", _POSITION, "A position of the feed, or `beginning`."),
    "changes": _in_query("limit", _number(1, 1_000), "Changes in a page, 100 unless asked."),
    "wait": _in_query("wait", _number(0, 30), "Seconds to wait for the first change."),
    "lastEventId": {
        "name": "Last-Event-ID",
        "in": "header",
        "schema": _POSITION,
        "description": "The last event that was seen (HTML, section 9.2).",
    },
}

FEED_SCHEMAS: Final[dict[str, Any]] = {
    "Change": {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in ("id", "database", "class", "object", "group")},
            "version": {"type": "integer"},
            "kind": {"enum": ["create", "replace", "update", "delete"]},
            "before": _FIELDS,
            "after": _FIELDS,
            "time": {"type": "string", "format": "date-time"},
        },
        "required": [
            *("id", "database", "class", "object", "group"),
            *("version", "kind", "before", "after", "time"),
        ],
    },
    "Changes": {
        "type": "object",
        "properties": {
            "changes": {"type": "array", "items": {"$ref": "#/components/schemas/Change"}},
            "position": _POSITION,
        },
        "required": ["changes", "position"],
    },
}
