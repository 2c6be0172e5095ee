"""Ranges that give a class in the order of a field, one after the other.

BSON sorts missing and null alike, and the port does not; so each has a range of its own, sorted by
id. Within a range one index on (field, id) serves both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from mediator.schema.tree import MissingType
from mediator.schema.types import FieldType, Value
from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import LIVE, Document, Layout

__all__ = ["SATURATION", "OrderRange", "Position", "ranges"]

Position = tuple[Value | MissingType, str]
"""The value (or MISSING) and the id of the last record seen."""

_MISSING: Final[Document] = {"$exists": False}
_NULL: Final[Document] = {"$eq": None, "$exists": True}
_VALUES: Final[Document] = {"$ne": None}
_ZERO: Final[Document] = {"$eq": 0.0}


SATURATION: Final = 2.0**62
"""Beyond this, mongo-java-server compares whole doubles as longs, and the larger ones as equal."""


@dataclass(frozen=True, slots=True)
class OrderRange:
    """A part of a class; ranges follow each other without overlap.

    Attributes:
        query: The condition.
        sort: The order by the server, or None: the server cannot, so the range is read whole, and
            sorted, and cut, by us.
    """

    query: Document
    sort: dict[str, int] | None


def ranges(
    layout: Layout, field: str, *, descending: bool, after: Position | None, saturates: bool
) -> Iterator[OrderRange]:
    """Yield the ranges that hold the records beyond `after`, in order; see `SATURATION`."""
    path = layout.paths[field]
    direction = -1 if descending else 1
    by_id = {"_id": direction}
    parts = [OrderRange({path: _MISSING}, by_id), OrderRange({path: _NULL}, by_id)]
    if saturates and layout.fragment.fields[field].type is FieldType.FLOAT:
        parts += _of_doubles(path, direction)
    else:
        parts.append(OrderRange({path: _VALUES}, {path: direction, "_id": direction}))
    if descending:
        parts.reverse()
    for part in _beyond(layout, field, parts, after, descending) if after else parts:
        yield OrderRange(LIVE | part.query, part.sort)


def _of_doubles(path: str, direction: int) -> list[OrderRange]:
    """Return ranges within which the server sorts well; it also puts -0.0 before 0.0."""
    by_value = {path: direction, "_id": direction}
    return [
        OrderRange({path: {"$lt": -SATURATION}}, None),
        OrderRange({path: {"$gte": -SATURATION, "$lt": 0.0}}, by_value),
        OrderRange({path: _ZERO}, {"_id": direction}),
        OrderRange({path: {"$gt": 0.0, "$lte": SATURATION}}, by_value),
        OrderRange({path: {"$gt": SATURATION}}, None),
    ]


def _beyond(
    layout: Layout, field: str, parts: list[OrderRange], after: Position, descending: bool
) -> Iterator[OrderRange]:
    """Yield first what ties with the last record seen, then what is beyond its value."""
    path = layout.paths[field]
    value, id_ = after
    beyond = "$lt" if descending else "$gt"
    rest: Document = {"_id": {beyond: ordered_text(id_)}}
    tie, further = _tie(layout, field, value)
    yield OrderRange({path: tie} | rest, {"_id": -1 if descending else 1})
    for part in parts:
        condition = part.query[path]
        if condition in (_MISSING, _NULL):
            if _follows(condition, tie, descending):
                yield part
        elif further is None:
            if not descending:
                yield part
        elif part.sort is None:
            yield part
        else:
            yield OrderRange({"$and": [part.query, {path: {beyond: further}}]}, part.sort)


def _tie(layout: Layout, field: str, value: Value | MissingType) -> tuple[Document, Any]:
    if isinstance(value, MissingType):
        return _MISSING, None
    if value is None:
        return _NULL, None
    stored = layout.encode(field, value)
    return {"$eq": stored}, stored


def _follows(condition: Document, tie: Document, descending: bool) -> bool:
    """Whether missing, or null, comes after the value of the last record seen."""
    if not descending:
        return condition is _NULL and tie is _MISSING
    return tie is not _MISSING and condition is not tie
