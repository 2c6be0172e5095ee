"""The sketch in OpenAPI 3.1: its parameter, and the client's filter as JSON."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["SKETCH_PARAMETERS", "SKETCH_SCHEMAS"]

_NUMBER: Final = {"type": "integer", "minimum": 0}
_GROUPS: Final = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "string"}},
}

SKETCH_PARAMETERS: Final[dict[str, Any]] = {
    "ofClasses": {
        "name": "class",
        "in": "query",
        "schema": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,62}(,[a-z][a-z0-9_]{0,62})*$"},
        "description": "Classes whose filters are united; all of them unless named.",
    }
}

SKETCH_SCHEMAS: Final[dict[str, Any]] = {
    "ClientFilter": {
        "type": "object",
        "properties": {
            **dict.fromkeys(("version", "hash", "k", "seed", "m", "time_us"), _NUMBER),
            "valid_for_ms": _NUMBER,
            "generation": {"type": "string", "pattern": "^[0-9]{1,20}$"},
            "revalidate_all": {"type": "boolean"},
            "incarnation": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "map": {"type": "object", "additionalProperties": _GROUPS},
            "bits": {"type": "string", "contentEncoding": "base64"},
        },
        "required": ["version", "m", "k", "time_us", "valid_for_ms", "incarnation", "map", "bits"],
    }
}
