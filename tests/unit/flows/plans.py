"""Plans that tests share."""

from __future__ import annotations

from typing import Any

from mediator.flows.parser import Flow, parse_flow
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema

SCHEMA_DOCUMENT: dict[str, Any] = {
    "classes": {
        "credits": {
            "fields": {"customer": {"type": "string", "index": True}, "amount": {"type": "integer"}}
        },
        "orders": {"fields": {"customer": {"type": "string"}, "credit": {"type": "integer"}}},
    }
}

LOOKUP = {
    "op": "invoke",
    "query": {"class": "credits", "filter": {"eq": ["customer", {"$": "/wanted"}]}},
    "to": "credits",
}
ORDERS: list[dict[str, Any]] = [
    {"op": "receive", "attributes": {"number": "string", "name": "string"}},
    {"op": "assign", "to": "wanted", "value": {"$": "/name"}},
    LOOKUP,
    {"op": "join", "with": "credits", "on": {"customer": {"$": "/name"}}, "to": "credit"},
    {
        "op": "invoke",
        "write": {
            "class": "orders",
            "id": {"$": "/number"},
            "body": {"customer": {"$": "/name"}, "credit": {"$": "/credit/amount"}},
        },
    },
]
"""The plan of the paper's figures 1 to 3: a lookup by customer, a join, a write."""


def schema() -> Schema:
    return parse_schema("shop", SCHEMA_DOCUMENT)


def flow(plan: list[dict[str, Any]], **members: Any) -> Flow:
    return parse_flow({"plan": plan, "latency_s": 10, **members}, schema())
