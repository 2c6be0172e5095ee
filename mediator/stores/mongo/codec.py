"""Encodes values, texts and keys as BSON, so that every server orders them alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from bson.int64 import Int64

from mediator.schema.tree import Field
from mediator.schema.types import TEXTS, FieldType

__all__ = [
    "Codec",
    "decimal_of",
    "field_codec",
    "item_codec",
    "microseconds",
    "moment",
    "ordered_text",
    "path_key",
    "plain_key",
    "plain_text",
    "sortable_decimal",
]

_ABOVE_SURROGATES: Final = re.compile("[\ue000-\U0010ffff]")
_PREFIXED: Final = re.compile("[\ue000\ue001](.)", re.DOTALL)
_SPECIAL: Final = re.compile("[%.$\x00]")
_ESCAPED: Final = re.compile("%([0-9A-F]{2})")
_EMPTY_KEY: Final = "%"


def ordered_text(text: str) -> str:
    """Encode a text so that every server sorts it by UTF-8 bytes.

    mongo-java-server compares UTF-16 code units, which sort U+E000 to U+FFFF after the
    supplementary characters. All of these characters get a prefix that sorts alike in both
    encodings; other texts, nearly all, are stored unchanged.
    """
    return text if text.isascii() else _ABOVE_SURROGATES.sub(_add_prefix, text)


def plain_text(stored: str) -> str:
    """Decode the result of `ordered_text`."""
    return stored if stored.isascii() else _PREFIXED.sub(r"\1", stored)


def _add_prefix(match: re.Match[str]) -> str:
    character = match[0]
    return ("\ue000" if character <= "\uffff" else "\ue001") + character


def path_key(key: str) -> str:
    """Escape a user's key so that it is one step of a path, and never an operator."""
    return _SPECIAL.sub(_escape, key) if key else _EMPTY_KEY


def plain_key(stored: str) -> str:
    """Decode the result of `path_key`."""
    if stored == _EMPTY_KEY:
        return ""
    return _ESCAPED.sub(_unescape, stored) if "%" in stored else stored


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


# Decimals are texts that sort by value. Decimal128 would be the obvious form, but mongo-java-server
# treats two of them as equal if their doubles are: it would keep 0.1 instead of
# 0.100000000000000000000000000000001. Equal values have equal texts, without trailing zeros.
#
# zero      "1"
# positive  "2", the exponent of the first digit as five digits above 50000, the digits
# negative  "0", the complements of all these digits, "~": so -1 sorts after -1.1
_BIAS: Final = 50_000
_EXPONENT_DIGITS: Final = 5
_COMPLEMENT: Final = str.maketrans("0123456789", "9876543210")
_ZERO: Final = "1"
_POSITIVE: Final = "2"
_NEGATIVE: Final = "0"
_END: Final = "~"


def sortable_decimal(value: Decimal) -> str:
    if not value:
        return _ZERO
    sign, digits, _ = value.as_tuple()
    text = f"{value.adjusted() + _BIAS:0{_EXPONENT_DIGITS}d}"
    text += "".join(map(str, digits)).rstrip("0")
    return _NEGATIVE + text.translate(_COMPLEMENT) + _END if sign else _POSITIVE + text


def decimal_of(stored: str) -> Decimal:
    """Decode the result of `sortable_decimal`, without trailing zeros."""
    if stored == _ZERO:
        return Decimal(0)
    negative = stored.startswith(_NEGATIVE)
    text = stored[1:-1].translate(_COMPLEMENT) if negative else stored[1:]
    digits = tuple(map(int, text[_EXPONENT_DIGITS:]))
    adjusted = int(text[:_EXPONENT_DIGITS]) - _BIAS
    return Decimal((int(negative), digits, adjusted - len(digits) + 1))


Convert: TypeAlias = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Codec:
    """The conversions of a value from Python to BSON and back; neither is called for null."""

    encode: Convert
    decode: Convert


def microseconds(moment: datetime) -> int:
    """Return microseconds since the epoch: BSON dates have only milliseconds."""
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


_ITEMS: Final[Mapping[FieldType, Codec]] = {
    FieldType.STRING: Codec(_same, _same),
    FieldType.REFERENCE: Codec(_same, _same),
    FieldType.INTEGER: Codec(Int64, int),
    FieldType.FLOAT: Codec(float, _same),
    FieldType.DECIMAL: Codec(sortable_decimal, decimal_of),
    FieldType.BOOLEAN: Codec(_same, _same),
    FieldType.TIMESTAMP: Codec(_timestamp, moment),
    FieldType.BINARY: Codec(bytes, bytes),
    FieldType.DOCUMENT: Codec(_document, _json),
}


def item_codec(type_: FieldType) -> Codec:
    return _ITEMS[type_]


def field_codec(field: Field) -> Codec:
    if field.items is not None:
        return _COLLECTIONS[field.type](_ITEMS[field.items])
    # Texts are stored sortable; the server never sorts by items.
    return _ORDERED_TEXT if field.type in TEXTS else _ITEMS[field.type]


def _list(item: Codec) -> Codec:
    return Codec(
        lambda value: list(map(item.encode, value)),
        lambda stored: list(map(item.decode, stored)),
    )


def _set(item: Codec) -> Codec:
    """Return the codec of a set: `$addToSet` keeps no order, so sets are sorted when read."""
    return Codec(
        lambda value: list(map(item.encode, sorted(set(value)))),
        lambda stored: sorted(map(item.decode, stored)),
    )


def _map(item: Codec) -> Codec:
    return Codec(
        lambda value: {path_key(key): item.encode(member) for key, member in value.items()},
        lambda stored: {plain_key(key): item.decode(member) for key, member in stored.items()},
    )


_ORDERED_TEXT: Final = Codec(ordered_text, plain_text)
_COLLECTIONS: Final[Mapping[FieldType, Callable[[Codec], Codec]]] = {
    FieldType.LIST: _list,
    FieldType.SET: _set,
    FieldType.MAP: _map,
}
