"""Consecutive ranges that together give a class in the order of a field.

BSON does not distinguish missing and null in sorting, but the port does; so each has a separate
range, sorted by id. Within a range one index on (field, id) serves both directions.
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
"""The value (or MISSING) and the id of the last record read."""

_MISSING: Final[Document] = {"$exists": False}
_NULL: Final[Document] = {"$eq": None, "$exists": True}
_VALUES: Final[Document] = {"$ne": None}
_ZERO: Final[Document] = {"$eq": 0.0}


SATURATION: Final = 2.0**62
"""Beyond this, mongo-java-server compares integral doubles as longs, the largest ones as equal."""


@dataclass(frozen=True, slots=True)
class OrderRange:
    """A range of a class; ranges follow each other without overlap.

    Attributes:
        query: The condition.
        sort: The server's order; None: the server cannot sort it, so the range is read completely,
            and sorted and cut here.
    """

    query: Document
    sort: dict[str, int] | None


def ranges(
    layout: Layout, field: str, *, descending: bool, after: Position | None, saturates: bool
) -> Iterator[OrderRange]:
    """Yield the ranges of the records beyond `after`, in order; see `SATURATION`."""
    path = layout.paths[field]
    direction = -1 if descending else 1
    by_id = {"_id": direction}
    order_ranges = [OrderRange({path: _MISSING}, by_id), OrderRange({path: _NULL}, by_id)]
    if saturates and layout.fragment.fields[field].type is FieldType.FLOAT:
        order_ranges += _of_doubles(path, direction)
    else:
        order_ranges.append(OrderRange({path: _VALUES}, {path: direction, "_id": direction}))
    if descending:
        order_ranges.reverse()
    for order_range in (
        _beyond(layout, field, order_ranges, after, descending) if after else order_ranges
    ):
        yield OrderRange(LIVE | order_range.query, order_range.sort)


def _of_doubles(path: str, direction: int) -> list[OrderRange]:
    """Return ranges within which the server sorts correctly; it also sorts -0.0 before 0.0."""
    by_value = {path: direction, "_id": direction}
    return [
        OrderRange({path: {"$lt": -SATURATION}}, None),
        OrderRange({path: {"$gte": -SATURATION, "$lt": 0.0}}, by_value),
        OrderRange({path: _ZERO}, {"_id": direction}),
        OrderRange({path: {"$gt": 0.0, "$lte": SATURATION}}, by_value),
        OrderRange({path: {"$gt": SATURATION}}, None),
    ]


def _beyond(
    layout: Layout, field: str, order_ranges: list[OrderRange], after: Position, descending: bool
) -> Iterator[OrderRange]:
    """Yield first the range that ties with the last record, then the ranges beyond its value."""
    path = layout.paths[field]
    value, id_ = after
    comparison = "$lt" if descending else "$gt"
    beyond_id: Document = {"_id": {comparison: ordered_text(id_)}}
    tie, stored = _tie(layout, field, value)
    yield OrderRange({path: tie} | beyond_id, {"_id": -1 if descending else 1})
    for order_range in order_ranges:
        condition = order_range.query[path]
        if condition in (_MISSING, _NULL):
            if _follows(condition, tie, descending):
                yield order_range
        elif stored is None:
            if not descending:
                yield order_range
        elif order_range.sort is None:
            yield order_range
        else:
            yield OrderRange(
                {"$and": [order_range.query, {path: {comparison: stored}}]}, order_range.sort
            )


def _tie(layout: Layout, field: str, value: Value | MissingType) -> tuple[Document, Any]:
    if isinstance(value, MissingType):
        return _MISSING, None
    if value is None:
        return _NULL, None
    stored = layout.encode(field, value)
    return {"$eq": stored}, stored


def _follows(condition: Document, tie: Document, descending: bool) -> bool:
    """Whether missing, or null, comes after the value of the last record."""
    if not descending:
        return condition is _NULL and tie is _MISSING
    return tie is not _MISSING and condition is not tie
