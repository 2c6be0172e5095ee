"""Domain values as JSON that can be decoded without a schema.

For durable records of Portolan that must outlive a schema change (redo records). A value without a
JSON form is a pair ``{"t": tag, "v": text}``, and so is every mapping, so that a user's key cannot
be mistaken for a tag.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from mediator.schema.types import Value

__all__ = ["dump", "load"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def dump(value: Value) -> Any:
    match value:
        case Decimal():
            return {"t": "decimal", "v": str(value)}
        case datetime():
            return {"t": "timestamp", "v": (value - _EPOCH) // _MICROSECOND}
        case bytes():
            return {"t": "binary", "v": b64encode(value).decode()}
        case list():
            return [dump(item) for item in value]
        case dict():
            return {"t": "map", "v": {key: dump(item) for key, item in value.items()}}
    return value


def load(form: Any) -> Value:
    match form:
        case {"t": "decimal", "v": text}:
            return Decimal(text)
        case {"t": "timestamp", "v": microseconds}:
            return _EPOCH + timedelta(microseconds=microseconds)
        case {"t": "binary", "v": text}:
            return b64decode(text)
        case {"t": "map", "v": items}:
            return {key: load(item) for key, item in items.items()}
        case list():
            return [load(item) for item in form]
    value: Value = form
    return value
