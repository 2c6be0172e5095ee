"""Objects over three systems, before and after a put."""

from __future__ import annotations

from mediator.schema.types import Values
from tests.process.service import field_on

__all__ = ["NEW", "OLD", "SPLIT", "SYSTEMS"]

SYSTEMS = ("postgres", "redis", "mongo")
OLD: Values = {"a": "A", "p": 10, "mv": "C1"}
NEW: Values = {"a": "P", "p": 0, "mv": "P"}
SPLIT = {
    "fields": {
        "a": field_on("postgres"),
        "p": field_on("redis", "integer", group="p"),
        "mv": field_on("mongo", group="mv"),
    }
}
