"""Translates operators to MongoDB's update operators, where these are exact.

A native operator comes with a *guard*: a condition on the present value, under which MongoDB and
mongo-java-server both behave like `mediator.model.apply`. Where the guard fails (at the ends of a
type's range, for null, for a full list) the record is read and the value computed, which is as
exact, but costs two more round trips. A server must never see an overflow: `$inc` turns a long into
a double or an error in MongoDB, and wraps in mongo-java-server.
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

__all__ = ["NativeUpdate", "native"]


@dataclass(frozen=True, slots=True)
class NativeUpdate:
    """A native update: its modifiers by path, and a condition on paths."""

    update: Mapping[str, Document]
    guard: Document


_Build: TypeAlias = Callable[[Field, str, Any], NativeUpdate | None]

_NOT_NULL: Final[Document] = {"$not": {"$type": "null"}}
_MAX_EXACT_FLOAT: Final = SATURATION
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
"""Items that are equal exactly if their bytes are; unlike doubles, where 0.0 equals -0.0."""


def native(layout: Layout, call: OperatorCall, stamp: int) -> NativeUpdate | None:
    """Translate one operator; None if no native update is exact for its argument."""
    field = layout.fragment.fields[call.field]
    path = layout.paths[call.field]
    if call.operator is Operator.NOW:
        return NativeUpdate({"$set": {path: Int64(stamp)}}, {})
    build = _BUILDERS.get(call.operator)
    if build is None or (call.operator is not Operator.INC and field.is_bounded):
        return None
    return build(field, path, call.argument)


def _inc(field: Field, path: str, argument: Any) -> NativeUpdate | None:
    if field.type is FieldType.INTEGER:
        guard = _addable_range(field, argument) if field.is_bounded else _addable_int64(argument)
        return NativeUpdate({"$inc": {path: Int64(argument)}}, {path: guard}) if guard else None
    if field.is_bounded:
        return None  # a sum of doubles is rounded, so no condition on one operand bounds it
    if field.type is not FieldType.FLOAT or not 0 < abs(argument) < _HALF_MAX:
        return None
    return NativeUpdate(
        {"$inc": {path: float(argument)}},
        {path: {"$gte": -_MAX_EXACT_FLOAT, "$lte": _MAX_EXACT_FLOAT}},
    )


def _addable_int64(argument: int) -> Document:
    if argument >= 0:
        return {"$not": {"$gt": Int64(INTEGER_MAX - argument)}}
    return {"$not": {"$lt": Int64(INTEGER_MIN - argument)}}


def _addable_range(field: Field, argument: int) -> Document | None:
    """Return the range of values to which an integer can be added, without missing and null."""
    low, high = field.minimum, field.maximum
    minimum = max(INTEGER_MIN, (INTEGER_MIN if low is None else low) - argument)
    maximum = min(INTEGER_MAX, (INTEGER_MAX if high is None else high) - argument)
    return {"$gte": Int64(minimum), "$lte": Int64(maximum)} if minimum <= maximum else None


def _mul(field: Field, path: str, argument: Any) -> NativeUpdate | None:
    if field.type is FieldType.INTEGER:
        return NativeUpdate({"$mul": {path: Int64(argument)}}, {path: _factor_range(argument)})
    if field.type is not FieldType.FLOAT:
        return None
    return _float_product(path, float(argument))


def _factor_range(argument: int) -> Document:
    """Return the range of values whose product is an int64, without missing and null."""
    bound = INTEGER_MAX // max(abs(argument), 1)
    return {"$gte": Int64(-bound), "$lte": Int64(bound)}


def _float_product(path: str, argument: float) -> NativeUpdate | None:
    if not _SMALL < abs(argument) < _LARGE:
        return None
    # A product of doubles far from the ends of their range is neither infinite nor -0.0.
    far_from_zero = {"$not": {"$gt": -_SMALL, "$lt": _SMALL}}
    guard = {"$gte": -_MAX_EXACT_FLOAT, "$lte": _MAX_EXACT_FLOAT} | far_from_zero
    return NativeUpdate({"$mul": {path: argument}}, {path: guard})


def _extreme(modifier: str) -> _Build:
    def build(field: Field, path: str, argument: Any) -> NativeUpdate | None:
        if field.type is FieldType.FLOAT:
            within = {"$gte": -_MAX_EXACT_FLOAT, "$lte": _MAX_EXACT_FLOAT}
            return (
                NativeUpdate({modifier: {path: argument}}, {path: within})
                if abs(argument) <= _MAX_EXACT_FLOAT
                else None
            )
        # BSON sorts null before all numbers, so $min would keep it.
        return NativeUpdate(
            {modifier: {path: item_codec(field.type).encode(argument)}}, {path: _NOT_NULL}
        )

    return build


def _push(field: Field, path: str, argument: Any) -> NativeUpdate:
    return _push_update(field, path, {"$each": [_item(field, argument)]})


def _push_front(field: Field, path: str, argument: Any) -> NativeUpdate:
    return _push_update(field, path, {"$each": [_item(field, argument)], "$position": 0})


def _push_update(field: Field, path: str, push: Document) -> NativeUpdate:
    return NativeUpdate({"$push": {path: push}}, {path: _NOT_NULL} | _vacancy(field, path))


def _item(field: Field, argument: Any) -> Any:
    assert field.items is not None
    return item_codec(field.items).encode(argument)


def _vacancy(field: Field, path: str) -> Document:
    """Return the condition that the last position within `max_length` is free."""
    if field.max_length is None:
        return {}
    return {f"{path}.{field.max_length - 1}": {"$exists": False}}


def _pop(end: int) -> _Build:
    return lambda _field, path, _argument: NativeUpdate({"$pop": {path: end}}, {path: _NOT_NULL})


def _remove(field: Field, path: str, argument: Any) -> NativeUpdate | None:
    if field.type is FieldType.MAP:
        return NativeUpdate({"$unset": {f"{path}.{path_key(argument)}": ""}}, {path: _NOT_NULL})
    if field.items is FieldType.DOCUMENT:
        # Documents are equal regardless of the order of keys, but not in MongoDB.
        return None
    return NativeUpdate({"$pullAll": {path: [_item(field, argument)]}}, {path: _NOT_NULL})


def _add_to_set(field: Field, path: str, argument: Any) -> NativeUpdate | None:
    if field.items not in _EXACT_MEMBERS:
        return None
    update = {"$addToSet": {path: _item(field, argument)}}
    return NativeUpdate(update, {path: _NOT_NULL} | _vacancy(field, path))


def _put(field: Field, path: str, argument: Any) -> NativeUpdate | None:
    if not argument or field.max_length is not None:
        return None
    entries = {f"{path}.{path_key(key)}": _item(field, member) for key, member in argument.items()}
    return NativeUpdate({"$set": entries}, {path: _NOT_NULL})


_BUILDERS: Final[Mapping[Operator, _Build]] = {
    Operator.INC: _inc,
    Operator.MUL: _mul,
    Operator.MIN: _extreme("$min"),
    Operator.MAX: _extreme("$max"),
    Operator.PUSH: _push,
    Operator.PUSH_FRONT: _push_front,
    Operator.POP: _pop(1),
    Operator.SHIFT: _pop(-1),
    Operator.REMOVE: _remove,
    Operator.ADD_TO_SET: _add_to_set,
    Operator.PUT: _put,
}
