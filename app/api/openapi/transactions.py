"""Transactions in OpenAPI 3.1: what is read, what is written, and what came of it."""

from __future__ import annotations

from typing import Any, Final

from app.api.openapi.schemas import ref
from mediator.transactions.model import MOST_READS, MOST_WRITES

__all__ = ["TRANSACTION_SCHEMAS"]

TRANSACTION_SCHEMAS: Final[dict[str, Any]] = {
    "Seen": {
        "type": "object",
        "properties": {
            "class": {"type": "string"},
            "id": {"type": "string"},
            "etag": {
                "type": ["string", "null"],
                "description": "The ETag with which it was read; null: it was not there.",
            },
        },
        "required": ["class", "id", "etag"],
        "additionalProperties": False,
    },
    "Transaction": {
        "type": "object",
        "properties": {
            "reads": {"type": "array", "maxItems": MOST_READS, "items": ref("schemas", "Seen")},
            "operations": {
                "type": "array",
                "maxItems": MOST_WRITES,
                "items": ref("schemas", "BatchOperation"),
            },
        },
        "additionalProperties": False,
    },
    "TransactionResults": {
        "type": "object",
        "properties": {"results": ref("schemas", "Results")},
        "required": ["results"],
    },
}
