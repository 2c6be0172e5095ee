"""Encodes values as self-describing texts: a tag byte names the type, integers are plain digits.

=========== ==================================================================
``n``       null (a missing field is absent from the hash)
digits, -   integer
``s``       string or reference, UTF-8
``f``       float, the shortest text that reads back
``d``       decimal: sign, digits of the coefficient, ``e``, exponent
``b``       boolean, ``b0`` or ``b1``
``u``       timestamp, microseconds since 1970
``y``       binary, raw
``j``       document, and nested items: JSON with sorted keys
``L S M``   list, set, map: only a marker in the hash; in complete values followed by
            the members as netstrings (``length:bytes``), for a map keys and items in turn
=========== ==================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import orjson

from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType, Value

__all__ = ["COLLECTIONS", "NULL", "decode", "encode", "item_encoder", "members", "scalar_encoder"]

Text = str | bytes
Encoder = Callable[[Any], Text]

NULL: Final = "n"
COLLECTIONS: Final = frozenset({FieldType.LIST, FieldType.SET, FieldType.MAP})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _decimal(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    return f"d{'-' if sign else ''}{''.join(map(str, digits))}e{exponent}"


def _timestamp(value: datetime) -> str:
    # In integers: `timestamp()` is a float, which would round microseconds.
    return f"u{(value - _EPOCH) // _MICROSECOND}"


def _json(value: Any) -> bytes:
    return b"j" + orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


_ENCODERS: dict[FieldType, Encoder] = {
    FieldType.STRING: "s".__add__,
    FieldType.REFERENCE: "s".__add__,
    FieldType.INTEGER: str,
    FieldType.FLOAT: lambda value: f"f{value!r}",
    FieldType.DECIMAL: _decimal,
    FieldType.BOOLEAN: lambda value: "b1" if value else "b0",
    FieldType.TIMESTAMP: _timestamp,
    FieldType.BINARY: b"y".__add__,
}


def scalar_encoder(type_: FieldType) -> Encoder:
    """Return the encoder of values of a type; nested types become JSON."""
    return _ENCODERS.get(type_, _json)


def item_encoder(items: FieldType | None) -> Encoder:
    """Return the encoder of items: equal items have equal texts."""
    if items is FieldType.DECIMAL:
        return lambda item: NULL if item is None else _decimal(_canonical(item))
    if items is FieldType.FLOAT:
        # Adding 0.0 turns negative zero into zero, which is equal to it.
        return lambda item: NULL if item is None else f"f{item + 0.0!r}"
    encoder = _json if items is None else scalar_encoder(items)
    return lambda item: NULL if item is None else encoder(item)


def _canonical(value: Decimal) -> Decimal:
    sign, digits, exponent = value.as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    if not significant:
        return Decimal(0)
    assert isinstance(exponent, int)
    return Decimal((sign, tuple(map(int, significant)), exponent + len(digits) - len(significant)))


def members(value: Any, field: Field) -> list[Text]:
    """Return the marker of a collection and its members, for a map keys and items in turn."""
    encoder = item_encoder(field.items)
    if field.type is FieldType.MAP:
        flat: list[Text] = ["M"]
        for key, item in value.items():
            flat += (key, encoder(item))
        return flat
    return ["L" if field.type is FieldType.LIST else "S", *map(encoder, value)]


def encode(value: Value, field: Field) -> Text:
    """Return the text of a value that is not a collection."""
    return NULL if value is None else scalar_encoder(field.type)(value)


def decode(text: bytes) -> Value:
    """Return the value of a complete text from the store's scripts or `encode`."""
    decoder = _DECODERS.get(text[0])
    return int(text) if decoder is None else decoder(text[1:])


def _netstrings(text: bytes) -> Iterator[Value]:
    for member in _raw_netstrings(text):
        yield decode(member)


def _raw_netstrings(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        colon = text.index(b":", start)
        end = colon + 1 + int(text[start:colon])
        yield text[colon + 1 : end]
        start = end


def _map(text: bytes) -> Value:
    flat = _raw_netstrings(text)
    # The same iterator twice, because keys and items alternate.
    return {key.decode(): decode(item) for key, item in zip(flat, flat, strict=True)}


def _set(text: bytes) -> Value:
    items: list[Any] = list(_netstrings(text))
    return sorted(items)


_DECODERS: dict[int, Callable[[bytes], Value]] = {
    ord("n"): lambda _: None,
    ord("s"): bytes.decode,
    ord("f"): float,
    ord("d"): lambda text: Decimal(text.decode()),
    ord("b"): lambda text: text == b"1",
    ord("u"): lambda text: _EPOCH + int(text) * _MICROSECOND,
    ord("y"): bytes,
    ord("j"): orjson.loads,
    ord("L"): lambda text: list(_netstrings(text)),
    ord("S"): _set,
    ord("M"): _map,
}

assert set(_ENCODERS) == SCALARS
