"""Operators as MongoDB's own update operators, where these are exact.

A native operator comes with a *guard*: a condition on the value that is there, under which MongoDB
and mongo-java-server both do what `mediator.model.apply` does. Where the guard fails (at the
ends of a type's range, for null, for a full list) the record is read and the value computed, which
is as exact, and costs two more round trips. A server must never see an overflow: `$inc` turns a
long into a double or an error in MongoDB, and wraps in mongo-java-server.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from bson.int64 import Int64

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.mongo.codec import item_codec, path_key
from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.read.ordering import SATURATION

__all__ = ["Native", "native"]


@dataclass(frozen=True, slots=True)
class Native:
    """A native update: its modifiers with what they do to paths, under a condition on paths."""

    update: Mapping[str, Document]
    guard: Document


_Build: TypeAlias = Callable[[Field, str, Any], Native | None]

_NOT_NULL: Final[Document] = {"$not": {"$type": "null"}}
_REACH: Final = SATURATION
_HALF_MAX: Final = sys.float_info.max / 2
_LARGE: Final = 1e150
_SMALL: Final = 1e-150

_EXACT_MEMBERS: Final = frozenset(
    {
        FieldType.STRING,
        FieldType.REFERENCE,
        FieldType.INTEGER,
        FieldType.DECIMAL,
        FieldType.BOOLEAN,
        FieldType.TIMESTAMP,
        FieldType.BINARY,
    }
)
"""Items that are equal if their bytes are; of doubles, 0.0 and -0.0 are not alike."""


def native(layout: Layout, call: OperatorCall, stamp: int) -> Native | None:
    """Translate one operator; None if there is no native update that is exact for its argument."""
    field = layout.fragment.fields[call.field]
    path = layout.paths[call.field]
    if call.operator is Operator.NOW:
        return Native({"$set": {path: Int64(stamp)}}, {})
    build = _BUILDERS.get(call.operator)
    if build is None or (call.operator is not Operator.INC and field.is_bounded):
        return None
    return build(field, path, call.argument)


def _inc(field: Field, path: str, argument: Any) -> Native | None:
    if field.type is FieldType.INTEGER:
        room = _within(field, argument) if field.is_bounded else _room(argument)
        return Native({"$inc": {path: Int64(argument)}}, {path: room}) if room else None
    if field.is_bounded:
        return None  # a sum of doubles is rounded, so no condition on one of them bounds it
    if field.type is not FieldType.FLOAT or not 0 < abs(argument) < _HALF_MAX:
        return None
    return Native({"$inc": {path: float(argument)}}, {path: {"$gte": -_REACH, "$lte": _REACH}})


def _room(argument: int) -> Document:
    if argument >= 0:
        return {"$not": {"$gt": Int64(INTEGER_MAX - argument)}}
    return {"$not": {"$lt": Int64(INTEGER_MIN - argument)}}


def _within(field: Field, argument: int) -> Document | None:
    """Bound the values to which an integer may be added; missing and null are not within bounds."""
    low, high = field.minimum, field.maximum
    least = max(INTEGER_MIN, (INTEGER_MIN if low is None else low) - argument)
    most = min(INTEGER_MAX, (INTEGER_MAX if high is None else high) - argument)
    return {"$gte": Int64(least), "$lte": Int64(most)} if least <= most else None


def _mul(field: Field, path: str, argument: Any) -> Native | None:
    if field.type is FieldType.INTEGER:
        return Native({"$mul": {path: Int64(argument)}}, {path: _factors(argument)})
    if field.type is not FieldType.FLOAT:
        return None
    return _scaled(path, float(argument))


def _factors(argument: int) -> Document:
    """Bound the values whose product is an int64; missing and null are not within bounds."""
    bound = INTEGER_MAX // max(abs(argument), 1)
    return {"$gte": Int64(-bound), "$lte": Int64(bound)}


def _scaled(path: str, argument: float) -> Native | None:
    if not _SMALL < abs(argument) < _LARGE:
        return None
    # A product of doubles far from their ends can be neither infinite nor -0.0.
    far_from_zero = {"$not": {"$gt": -_SMALL, "$lt": _SMALL}}
    guard = {"$gte": -_REACH, "$lte": _REACH} | far_from_zero
    return Native({"$mul": {path: argument}}, {path: guard})


def _extreme(modifier: str) -> _Build:
    def build(field: Field, path: str, argument: Any) -> Native | None:
        if field.type is FieldType.FLOAT:
            within = {"$gte": -_REACH, "$lte": _REACH}
            return (
                Native({modifier: {path: argument}}, {path: within})
                if abs(argument) <= _REACH
                else None
            )
        # BSON sorts null before all numbers, so $min would keep it.
        return Native(
            {modifier: {path: item_codec(field.type).encode(argument)}}, {path: _NOT_NULL}
        )

    return build


def _push(field: Field, path: str, argument: Any) -> Native:
    return _pushed(field, path, {"$each": [_item(field, argument)]})


def _push_front(field: Field, path: str, argument: Any) -> Native:
    return _pushed(field, path, {"$each": [_item(field, argument)], "$position": 0})


def _pushed(field: Field, path: str, what: Document) -> Native:
    return Native({"$push": {path: what}}, {path: _NOT_NULL} | _vacancy(field, path))


def _item(field: Field, argument: Any) -> Any:
    assert field.items is not None
    return item_codec(field.items).encode(argument)


def _vacancy(field: Field, path: str) -> Document:
    """Require that the last place that `max_length` allows is free."""
    if field.max_length is None:
        return {}
    return {f"{path}.{field.max_length - 1}": {"$exists": False}}


def _end(which: int) -> _Build:
    return lambda _field, path, _argument: Native({"$pop": {path: which}}, {path: _NOT_NULL})


def _remove(field: Field, path: str, argument: Any) -> Native | None:
    if field.type is FieldType.MAP:
        return Native({"$unset": {f"{path}.{path_key(argument)}": ""}}, {path: _NOT_NULL})
    if field.items is FieldType.DOCUMENT:
        # Documents are equal whatever the order of their keys; to MongoDB they are not.
        return None
    return Native({"$pullAll": {path: [_item(field, argument)]}}, {path: _NOT_NULL})


def _add_to_set(field: Field, path: str, argument: Any) -> Native | None:
    if field.items not in _EXACT_MEMBERS:
        return None
    update = {"$addToSet": {path: _item(field, argument)}}
    return Native(update, {path: _NOT_NULL} | _vacancy(field, path))


def _put(field: Field, path: str, argument: Any) -> Native | None:
    if not argument or field.max_length is not None:
        return None
    entries = {f"{path}.{path_key(key)}": _item(field, member) for key, member in argument.items()}
    return Native({"$set": entries}, {path: _NOT_NULL})


_BUILDERS: Final[Mapping[Operator, _Build]] = {
    Operator.INC: _inc,
    Operator.MUL: _mul,
    Operator.MIN: _extreme("$min"),
    Operator.MAX: _extreme("$max"),
    Operator.PUSH: _push,
    Operator.PUSH_FRONT: _push_front,
    Operator.POP: _end(1),
    Operator.SHIFT: _end(-1),
    Operator.REMOVE: _remove,
    Operator.ADD_TO_SET: _add_to_set,
    Operator.PUT: _put,
}
