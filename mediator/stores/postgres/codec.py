"""How values travel: column types, and what asyncpg and JSON need of each field type.

Lists and sets are typed arrays, so that equality and order of their items are those of the scalar
types, decimals, times and bytes included. Maps and documents are jsonb; a map's items that JSON
cannot hold exactly are texts. jsonb crosses the wire as text, which costs nothing where it is not
used.
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

__all__ = ["Codec", "Convert", "encoded", "field_codec", "item_codec", "json_form"]

Convert: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """One type on its way; None where a value needs no change. Nulls never get here.

    Attributes:
        type: The type of the column.
        encode: From the Python form to what asyncpg takes.
        decode: From what asyncpg gives to the Python form.
        from_json: From what `json_form` makes, parsed, to the Python form.
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
    # asyncpg sends year 1's and year 9999's ends as the infinities, and reads those without zone.
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _time(text: str) -> datetime:
    return _INFINITE.get(text) or datetime.fromisoformat(text)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


def _each(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda items: [convert(item) for item in items]


def _members(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda items: {key: convert(item) for key, item in items.items()}


def _then(first: Convert | None, second: Convert) -> Convert:
    return second if first is None else lambda value: second(first(value))


_HUGE: Final = re.compile("[0-9]{19}")


def _document(text: str) -> Any:
    """Read a document; what is beyond 64 bits was a float, which jsonb writes out in digits."""
    document = orjson.loads(text)
    return _floated(document) if _HUGE.search(text) else document


def _floated(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _floated(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_floated(element) for element in value]
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
_FROM_MAP: Final = {**JSON_DECODERS, FieldType.DOCUMENT: _floated}


def _array(items: FieldType) -> Codec:
    item = _PLAIN[items]
    return Codec(ARRAY(item.type), _each(item.encode), _each(item.decode), _each(item.from_json))


def _map(items: FieldType) -> Codec:
    encode, decode = _members(SCALAR_ENCODERS.get(items)), _members(_FROM_MAP.get(items))
    load = orjson.loads if decode is None else _then(orjson.loads, decode)
    return Codec(JSONB(), _then(encode, _dumps), load, decode)


def field_codec(field: Field) -> Codec:
    """Return how values of a field travel."""
    if field.items is None:
        return _PLAIN[field.type]
    return _map(field.items) if field.type is FieldType.MAP else _array(field.items)


def item_codec(field: Field) -> Codec:
    """Return how one item of a field travels, or its value if it has no items."""
    return _PLAIN[field.items or field.type]


def encoded(codec: Codec, value: Any) -> Any:
    return value if value is None or codec.encode is None else codec.encode(value)


def json_form(field: Field, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the exact jsonb form of a column: JSON numbers would round decimals in readers."""
    if FieldType.DECIMAL in (field.type, field.items) and field.type is not FieldType.MAP:
        text = sa.Text() if field.items is None else ARRAY(sa.Text())
        return sa.func.to_jsonb(sa.cast(column, text), type_=JSONB)
    return sa.func.to_jsonb(column, type_=JSONB)
