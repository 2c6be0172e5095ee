"""How the values of each type are stored as BSON, and read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from bson.int64 import Int64

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.mongo.decimals import decimal_of, sortable_decimal
from mediator.stores.mongo.text import ordered_text, path_key, plain_key, plain_text

__all__ = ["Form", "form_of", "item_form", "microseconds", "moment"]

Convert: TypeAlias = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Form:
    """Two functions: from the Python form of a value to BSON, and back. Neither is given null."""

    encode: Convert
    decode: Convert


def microseconds(moment: datetime) -> int:
    """Return microseconds since the epoch: BSON's own dates have milliseconds only."""
    return (moment - _EPOCH) // _MICROSECOND


def _same(value: Any) -> Any:
    return value


def _timestamp(moment: datetime) -> Int64:
    return Int64(microseconds(moment))


def moment(stored: int) -> datetime:
    """Return the time that is so many microseconds after the epoch."""
    return _EPOCH + timedelta(microseconds=stored)


def _document(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {path_key(key): _document(member) for key, member in value.items()}
    if kind is list:
        return [_document(element) for element in value]
    return Int64(value) if kind is int else value


def _json(stored: Any) -> Any:
    if isinstance(stored, dict):
        return {plain_key(key): _json(member) for key, member in stored.items()}
    if isinstance(stored, list):
        return [_json(element) for element in stored]
    return int(stored) if type(stored) is Int64 else stored


_ITEMS: Final[Mapping[FieldType, Form]] = {
    FieldType.STRING: Form(_same, _same),
    FieldType.REFERENCE: Form(_same, _same),
    FieldType.INTEGER: Form(Int64, int),
    FieldType.FLOAT: Form(float, _same),
    FieldType.DECIMAL: Form(sortable_decimal, decimal_of),
    FieldType.BOOLEAN: Form(_same, _same),
    FieldType.TIMESTAMP: Form(_timestamp, moment),
    FieldType.BINARY: Form(bytes, bytes),
    FieldType.DOCUMENT: Form(_document, _json),
}


def item_form(type_: FieldType) -> Form:
    """Return the form of an item of a list, set or map."""
    return _ITEMS[type_]


def form_of(field: Field) -> Form:
    """Return the form of a field's values."""
    if field.items is None:
        return _scalar_form(field)
    return _COLLECTIONS[field.type](_ITEMS[field.items])


def _scalar_form(field: Field) -> Form:
    """Return a form that the server sorts; items are never sorted by it."""
    if field.type in _SORTED_AS_TEXT:
        return Form(ordered_text, plain_text)
    if field.type is FieldType.BINARY:
        # BSON compares binary by length first; texts of U+0000 to U+00FF compare as bytes do.
        return Form(_octets_text if field.index else bytes, _octets)
    return _ITEMS[field.type]


def _octets_text(value: bytes) -> str:
    return value.decode("latin-1")


def _octets(stored: bytes | str) -> bytes:
    """Read either form, so that a field may be given an index later."""
    return stored.encode("latin-1") if isinstance(stored, str) else bytes(stored)


def _list(item: Form) -> Form:
    return Form(
        lambda value: list(map(item.encode, value)),
        lambda stored: list(map(item.decode, stored)),
    )


def _set(item: Form) -> Form:
    """Return the form of a set: `$addToSet` keeps no order, so sets are sorted when read."""
    return Form(
        lambda value: list(map(item.encode, sorted(set(value)))),
        lambda stored: sorted(map(item.decode, stored)),
    )


def _map(item: Form) -> Form:
    return Form(
        lambda value: {path_key(key): item.encode(member) for key, member in value.items()},
        lambda stored: {plain_key(key): item.decode(member) for key, member in stored.items()},
    )


_SORTED_AS_TEXT: Final = frozenset({FieldType.STRING, FieldType.REFERENCE})
_COLLECTIONS: Final[Mapping[FieldType, Callable[[Form], Form]]] = {
    FieldType.LIST: _list,
    FieldType.SET: _set,
    FieldType.MAP: _map,
}
