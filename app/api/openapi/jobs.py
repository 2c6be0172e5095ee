"""Jobs in OpenAPI 3.1: the parameters of their routes, and what a run looks like."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["JOB_PARAMETERS", "JOB_SCHEMAS"]

_COUNT: Final = {"type": "integer", "minimum": 0}
_TIME: Final = {"type": "string", "format": "date-time"}
_NUMBER: Final = {"type": "number", "minimum": 0}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_COUNTS: Final = {"type": "object", "additionalProperties": _COUNT}
_CURSOR: Final = {"type": ["string", "null"]}

JOB_PARAMETERS: Final[dict[str, Any]] = {
    "run": {
        "name": "run",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[0-9a-f]+$"},
        "description": "Id of the run.",
    },
    "dryRun": {
        "name": "dry_run",
        "in": "query",
        "schema": {"enum": ["true", "false"]},
        "description": "End with the forecast.",
    },
    "runs": {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100},
        "description": "Runs in a page, 20 unless asked.",
    },
}


def _open(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


JOB_SCHEMAS: Final[dict[str, Any]] = {
    "Job": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "minLength": 1},
            "spec": {"type": "object"},
            "limits": {
                "type": "object",
                "properties": {
                    **dict.fromkeys(("rows", "pairs", "memory_bytes"), _COUNT),
                    "time_s": {"type": "number", "exclusiveMinimum": 0},
                },
                "additionalProperties": False,
            },
            "into": {
                "type": "object",
                "properties": {
                    "class": {"type": "string", "minLength": 1},
                    "id": {**_TEXTS, "minItems": 1, "maxItems": 8, "uniqueItems": True},
                },
                "required": ["class"],
                "additionalProperties": False,
            },
        },
        "required": ["kind", "spec"],
        "additionalProperties": False,
        "examples": [
            {
                "kind": "example.count",
                "spec": {"records": {"class": "people"}, "field": "city"},
                "limits": {"rows": 1_000_000},
            }
        ],
    },
    "Run": _open(
        {
            "id": {"type": "string"},
            "kind": {"type": "string"},
            "state": {
                "enum": [
                    *("queued", "forecasting", "running"),
                    *("done", "failed", "stopped", "cancelled"),
                ]
            },
            "dry_run": {"type": "boolean"},
            "attempt": _COUNT,
            "cancelling": {"type": "boolean"},
            "created": _TIME,
            "ended": {"type": ["string", "null"], "format": "date-time"},
            "stages": {"type": "array", "items": {"$ref": "#/components/schemas/RunStage"}},
            "counters": _COUNTS,
            "elapsed_s": _NUMBER,
            "eta_s": {"type": ["number", "null"]},
            "log": _TEXTS,
            "forecast": {"$ref": "#/components/schemas/Forecast"},
            "reasons": _TEXTS,
            "rows": {"type": ["integer", "null"], "minimum": 0},
            "reports": {"type": "object"},
            "job": {"$ref": "#/components/schemas/Job"},
        },
        *("id", "kind", "state", "dry_run", "attempt", "cancelling", "created", "ended"),
    ),
    "RunStage": _open(
        {
            "name": {"type": "string"},
            "state": {"enum": ["waiting", "running", "done"]},
            **dict.fromkeys(("done", "total", "rows"), _COUNT),
            "seconds": _NUMBER,
        },
        *("name", "state", "done", "total", "rows", "seconds"),
    ),
    "Forecast": _open(
        {
            "rows": _COUNTS,
            **dict.fromkeys(("pairs", "memory_bytes"), _COUNT),
            "heaviest": {
                "type": "array",
                "items": _open(
                    {"name": {"type": "string"}, "records": _COUNT, "pairs": _COUNT},
                    *("name", "records", "pairs"),
                ),
            },
            "time_s": _NUMBER,
            "notes": _TEXTS,
        },
        *("rows", "pairs", "heaviest", "memory_bytes", "time_s", "notes"),
    ),
    "Runs": _open(
        {
            "items": {"type": "array", "items": {"$ref": "#/components/schemas/Run"}},
            "next": _CURSOR,
        },
        "items",
        "next",
    ),
    "RunRows": _open(
        {"items": {"type": "array", "items": {"type": "object"}}, "next": _CURSOR}, "items", "next"
    ),
}
