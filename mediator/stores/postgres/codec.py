"""Codecs: the column type of each field type, and its conversions for asyncpg and JSON.

Lists and sets are typed arrays, so that their items have the equality and order of the scalar
types, including decimals, times and bytes. Maps and documents are jsonb; items of maps that JSON
cannot hold exactly are texts. jsonb is sent as text, which costs nothing where it is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB

from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.scalars import SCALAR_ENCODERS
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.outboxes import JSON_DECODERS

__all__ = ["Codec", "Convert", "encode_value", "field_codec", "item_codec", "json_form"]

Convert: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """The conversions of one type; None where values need none. Nulls are not converted.

    Attributes:
        type: The type of the column.
        encode: From Python values to asyncpg arguments.
        decode: From asyncpg results to Python values.
        from_json: From parsed `json_form` to Python values.
    """

    type: sa.types.TypeEngine[Any]
    encode: Convert | None = None
    decode: Convert | None = None
    from_json: Convert | None = None


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


_INFINITE: Final = {
    "infinity": datetime.max.replace(tzinfo=UTC),
    "-infinity": datetime.min.replace(tzinfo=UTC),
}


def _aware(value: datetime) -> datetime:
    # asyncpg sends the first and last instants as infinities, and reads these without a zone.
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _time(text: str) -> datetime:
    return _INFINITE.get(text) or datetime.fromisoformat(text)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


def _itemwise(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda items: [convert(item) for item in items]


def _memberwise(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda items: {key: convert(item) for key, item in items.items()}


def _compose(first: Convert | None, second: Convert) -> Convert:
    return second if first is None else lambda value: second(first(value))


_HUGE: Final = re.compile("[0-9]{19}")


def _document(text: str) -> Any:
    """Parse a document; a number beyond 64 bits was a float, which jsonb writes in full digits."""
    document = orjson.loads(text)
    return _with_floats(document) if _HUGE.search(text) else document


def _with_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_floats(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_floats(element) for element in value]
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        return float(value)
    return value


_TEXT: Final = sa.Text(collation="C")
_PLAIN: Final[dict[FieldType, Codec]] = {
    FieldType.STRING: Codec(_TEXT),
    FieldType.REFERENCE: Codec(_TEXT),
    FieldType.INTEGER: Codec(sa.BigInteger()),
    FieldType.FLOAT: Codec(sa.Double(), from_json=float),
    FieldType.DECIMAL: Codec(sa.Numeric(), from_json=Decimal),
    FieldType.BOOLEAN: Codec(sa.Boolean()),
    FieldType.TIMESTAMP: Codec(sa.DateTime(timezone=True), decode=_aware, from_json=_time),
    FieldType.BINARY: Codec(BYTEA(), from_json=_bytes),
    FieldType.DOCUMENT: Codec(JSONB(), encode=_dumps, decode=_document),
}
_FROM_MAP: Final = {**JSON_DECODERS, FieldType.DOCUMENT: _with_floats}


def _array(items: FieldType) -> Codec:
    item = _PLAIN[items]
    return Codec(
        ARRAY(item.type), _itemwise(item.encode), _itemwise(item.decode), _itemwise(item.from_json)
    )


def _map(items: FieldType) -> Codec:
    encode, decode = _memberwise(SCALAR_ENCODERS.get(items)), _memberwise(_FROM_MAP.get(items))
    load = orjson.loads if decode is None else _compose(orjson.loads, decode)
    return Codec(JSONB(), _compose(encode, _dumps), load, decode)


def field_codec(field: Field) -> Codec:
    """Return the codec of a field."""
    if field.items is None:
        return _PLAIN[field.type]
    return _map(field.items) if field.type is FieldType.MAP else _array(field.items)


def item_codec(field: Field) -> Codec:
    """Return the codec of one item of a field, or of its value if it has no items."""
    return _PLAIN[field.items or field.type]


def encode_value(codec: Codec, value: Any) -> Any:
    return value if value is None or codec.encode is None else codec.encode(value)


def json_form(field: Field, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the exact jsonb form of a column: JSON numbers would round decimals in readers."""
    if FieldType.DECIMAL in (field.type, field.items) and field.type is not FieldType.MAP:
        text = sa.Text() if field.items is None else ARRAY(sa.Text())
        return sa.func.to_jsonb(sa.cast(column, text), type_=JSONB)
    return sa.func.to_jsonb(column, type_=JSONB)
