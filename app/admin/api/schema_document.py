"""The JSON Schema of schema documents and advice requests, for the OpenAPI document.

It describes; what is right is decided by `mediator.schema.parse`, which also names every mistake.
"""

from __future__ import annotations

from typing import Any, Final

from mediator.schema.annotations import Capability, Metric
from mediator.schema.tree import Mode
from mediator.schema.types import FieldType

__all__ = ["ADVICE_REQUEST", "SCHEMA_DOCUMENT", "WHAT_IF_REQUEST"]


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _map_of(values: dict[str, Any], pattern: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": values,
        "propertyNames": {"pattern": pattern},
    }


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_LOWER = "^[a-z][a-z0-9_]{0,62}$"
_FIELD_NAME = "^[A-Za-z][A-Za-z0-9_]{0,62}$"
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_NOT_NEGATIVE = {"type": "number", "minimum": 0}
_POINT = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
_POINTS = {"type": "array", "items": _POINT, "minItems": 1, "maxItems": 64}
_TYPES = [type_.value for type_ in FieldType]

_UTILITY = {
    "oneOf": [
        _object({"shape": {"enum": ["linear", "step"]}, "points": _POINTS}, "shape", "points"),
        _object(
            {
                "shape": {"const": "sigmoid"},
                "midpoint": {"type": "number"},
                "steepness": {"type": "number"},
            },
            "shape",
            "midpoint",
            "steepness",
        ),
    ]
}
_REQUIREMENT = _object({"require": {"enum": [c.value for c in Capability]}}, "require")
_MEASURED = _object(
    {
        "metric": {"enum": [m.value for m in Metric]},
        "weight": _POSITIVE,
        "goal": _POSITIVE,
        "utility": _UTILITY,
        "statistic": {"enum": ["mean", "p99"]},
        "violation": _object({"below": _NOT_NEGATIVE, "for_s": _NOT_NEGATIVE}, "below", "for_s"),
    },
    "metric",
)
_ANNOTATIONS = {
    "type": "array",
    "items": {"oneOf": [_REQUIREMENT, _MEASURED]},
    "maxItems": 64,
}
_FIELD = _object(
    {
        "type": {"enum": _TYPES},
        "items": _nullable({"enum": [name for name in _TYPES if name != FieldType.REFERENCE]}),
        "to": _nullable({"type": "string", "pattern": _LOWER}),
        "required": {"type": "boolean"},
        "max_length": _nullable({"type": "integer", "minimum": 1}),
        "default": {},
        "index": {"type": "boolean"},
        "group": _nullable({"type": "string", "pattern": _LOWER}),
        "annotations": _ANNOTATIONS,
    },
    "type",
)
_CLASS = _object(
    {
        "annotations": _ANNOTATIONS,
        "cache": _object(
            {
                "visibility": {"enum": ["public", "private", "none"]},
                "max_ttl_s": _POSITIVE,
                "invalidation_cost": _POSITIVE,
                "stale_cost": _POSITIVE,
            }
        ),
        "require_if_match": {"type": "boolean"},
        "ttl_s": _nullable({"type": "number", "minimum": 1}),
        "owner_field": _nullable({"type": "string", "pattern": _FIELD_NAME}),
        "fields": _map_of(_FIELD, _FIELD_NAME),
    }
)

SCHEMA_DOCUMENT: Final = _object(
    {
        "mode": {"enum": [mode.value for mode in Mode]},
        "materialised_view": _object(
            {"system": _nullable({"type": "string", "pattern": _LOWER}), "staleness_s": _POSITIVE}
        ),
        "default": _object({"system": _nullable({"type": "string", "pattern": _LOWER})}),
        "annotations": _ANNOTATIONS,
        "classes": _map_of(_CLASS, _LOWER),
    }
)
"""A schema as ``PUT /admin/v1/schemas/{database}`` takes it."""

_FIGURES = {
    "type": "object",
    "properties": {m.value: _NOT_NEGATIVE for m in Metric},
    "additionalProperties": False,
}

ADVICE_REQUEST: Final = _object(
    {
        "schema": SCHEMA_DOCUMENT,
        "systems": {
            "type": "object",
            "additionalProperties": _object(
                {
                    "capabilities": {
                        "type": "array",
                        "items": {"enum": [c.value for c in Capability]},
                    },
                    "metrics": _FIGURES,
                    "p99": _FIGURES,
                }
            ),
        },
    },
    "schema",
)
"""What ``POST /admin/v1/advice`` takes."""

_FIGURES_OF_SYSTEMS = {"type": "object", "additionalProperties": _FIGURES}

WHAT_IF_REQUEST: Final = _object(
    {
        "annotations": {
            "type": "object",
            "additionalProperties": _object({"weight": _POSITIVE, "goal": _POSITIVE}),
        },
        "metrics": _FIGURES_OF_SYSTEMS,
        "p99": _FIGURES_OF_SYSTEMS,
    }
)
"""What ``POST /admin/v1/what-if/{database}`` takes."""
