"""The codec between JSON and Python forms of values, compiled once for each class.

It runs for every request, so it looks for errors only where decoding fails, and copies only values
whose JSON form differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import uuid4

from mediator.base.errors import Location
from mediator.base.suggestions import did_you_mean
from mediator.schema.constraints import with_constraints
from mediator.schema.documents import document
from mediator.schema.errors import InvalidValue, invalid, locations_below, raise_errors, token
from mediator.schema.limits import MAP_KEY_BYTES
from mediator.schema.scalars import (
    SCALAR_DECODERS,
    SCALAR_ENCODERS,
    Decoder,
    Encoder,
    binary_decoder,
    check_text,
    string_decoder,
)
from mediator.schema.tree import ClassSchema, Field, Generated, MissingType
from mediator.schema.types import FieldType, Value, Values

__all__ = ["SET_BY_SERVICE", "Codec", "decoder", "encoder", "item_decoder", "map_key"]

SET_BY_SERVICE: Final = "is set by the service, at every write"

_MUTABLE = frozenset({list, dict})

_Generator: TypeAlias = Callable[[datetime], Value]
"""From the time of a write to a value."""

_GENERATORS: Final[Mapping[Generated, _Generator]] = {
    Generated.NOW: lambda now: now,
    Generated.UUID: lambda _: str(uuid4()),
}


def decoder(field: Field) -> Decoder:
    """Return the decoder of a field, for values other than null. It raises `InvalidValue`."""
    return with_constraints(field, _type_decoder(field))


def _member_decoder(field: Field) -> Decoder:
    return _refuse if field.updated else decoder(field)


def _refuse(_raw: Any) -> Value:
    raise InvalidValue(SET_BY_SERVICE)


def _generator(field: Field) -> _Generator | None:
    if field.updated:
        return _GENERATORS[Generated.NOW]
    return _GENERATORS[field.default] if isinstance(field.default, Generated) else None


def _type_decoder(field: Field) -> Decoder:
    max_length = sys.maxsize if field.max_length is None else field.max_length
    match field.type:
        case FieldType.STRING:
            return string_decoder(max_length)
        case FieldType.BINARY:
            return binary_decoder(max_length)
        case FieldType.DOCUMENT:
            return document
        case FieldType.LIST:
            return _list_decoder(item_decoder(field), max_length)
        case FieldType.SET:
            return _set_decoder(item_decoder(field), max_length)
        case FieldType.MAP:
            return _map_decoder(item_decoder(field), max_length)
        case scalar:
            return SCALAR_DECODERS[scalar]


def item_decoder(field: Field) -> Decoder:
    """Return the function that decodes one item of a list, set or map; items are never null."""
    assert field.items is not None
    return document if field.items is FieldType.DOCUMENT else SCALAR_DECODERS[field.items]


def encoder(field: Field) -> Encoder | None:
    """Return the function that encodes values of a field as JSON; None if they are JSON already."""
    if field.items is None:
        return SCALAR_ENCODERS.get(field.type)
    item = SCALAR_ENCODERS.get(field.items)
    if item is None:
        return None
    if field.type is FieldType.MAP:
        return lambda value: {key: item(member) for key, member in value.items()}
    return lambda value: [item(element) for element in value]


def map_key(raw: Any) -> str:
    if type(raw) is not str or not raw:
        raise InvalidValue("must have a key that is not empty")
    check_text(raw)
    if len(raw) > MAP_KEY_BYTES or len(raw.encode()) > MAP_KEY_BYTES:
        raise InvalidValue(f"must have a key of at most {MAP_KEY_BYTES} bytes")
    return raw


def _elements(raw: Any, item: Decoder) -> list[Any]:
    if type(raw) is not list:
        raise InvalidValue("must be an array")
    try:
        return [item(element) for element in raw]
    except InvalidValue:
        raise_errors(((f"/{index}", element) for index, element in enumerate(raw)), item)


def _list_decoder(item: Decoder, max_length: int) -> Decoder:
    def decode(raw: Any) -> list[Any]:
        value = _elements(raw, item)
        _check_length(value, max_length)
        return value

    return decode


def _set_decoder(item: Decoder, max_length: int) -> Decoder:
    def decode(raw: Any) -> list[Any]:
        value = sorted(set(_elements(raw, item)))
        _check_length(value, max_length)
        return value

    return decode


def _map_decoder(item: Decoder, max_length: int) -> Decoder:
    def entry(raw: tuple[Any, Any]) -> tuple[str, Any]:
        return map_key(raw[0]), item(raw[1])

    def decode(raw: Any) -> dict[str, Any]:
        if type(raw) is not dict:
            raise InvalidValue("must be an object")
        try:
            value = dict(map(entry, raw.items()))
        except InvalidValue:
            raise_errors(((token(str(member[0])), member) for member in raw.items()), entry)
        _check_length(value, max_length)
        return value

    return decode


def _check_length(value: list[Any] | dict[str, Any], max_length: int) -> None:
    if len(value) > max_length:
        raise InvalidValue(f"must have at most {max_length} elements")


class Codec:
    """Decodes and encodes the values of one class.

    Attributes:
        names: The fields, sorted.
        decoders: For each field the function that decodes its values, or raises `InvalidValue`.
        items: The same for the items of lists, sets and maps.
        nullable: The fields that take null: neither required nor set by the service.
        generated: The fields whose values the service generates if a whole object lacks them.
        unique: The fields of unique constraints, which take no operators.
        updated: The field with the time of the last write; None: the class has none.
    """

    __slots__ = (
        *("_defaults", "_encoders", "_generators", "_required"),
        *("decoders", "generated", "items", "names", "nullable", "unique", "updated"),
    )

    def __init__(self, schema: ClassSchema, unique: Collection[str] = ()) -> None:
        """`unique` are fields of unique constraints that the schema has only in part."""
        fields = schema.fields
        self.names = tuple(sorted(fields))
        self.unique = frozenset(unique).union(*schema.unique_constraints)
        self.updated = next((name for name, f in fields.items() if f.updated), None)
        self.decoders: Mapping[str, Decoder] = {
            name: _member_decoder(f) for name, f in fields.items()
        }
        self.items: Mapping[str, Decoder] = {
            name: item_decoder(f) for name, f in fields.items() if f.items is not None
        }
        self.nullable = frozenset(
            name for name, f in fields.items() if not (f.required or f.updated)
        )
        self._generators: Mapping[str, _Generator] = {
            name: generate for name, f in fields.items() if (generate := _generator(f)) is not None
        }
        self.generated = tuple(self._generators)
        self._defaults: Mapping[str, Value] = {
            name: f.default
            for name, f in fields.items()
            if not isinstance(f.default, MissingType | Generated)
        }
        self._required = {name for name, f in fields.items() if f.required and not f.has_default}
        self._encoders = tuple(
            (name, encode) for name, f in fields.items() if (encode := encoder(f)) is not None
        )

    def decode_object(self, body: Any, pointer: str = "") -> Values:
        """Decode a complete object, without `id`; missing fields take their defaults.

        `pointer` is its location in the request's body. Nothing mutable is shared with `body` or
        the schema.

        Raises:
            Invalid: With the location of every error.
        """
        try:
            values = self._decode(body)
        except (KeyError, InvalidValue):
            raise invalid(
                [*self._errors(body, pointer), *self._missing_fields(body, pointer)]
            ) from None
        if not values.keys() >= self._required:
            raise invalid(self._missing_fields(values, pointer))
        for name, default in self._defaults.items():
            if name not in values:
                values[name] = deepcopy(default) if type(default) in _MUTABLE else default
        if self._generators:
            values |= self._generate(name for name in self.generated if name not in values)
        return values

    def defaults(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the defaults of fields that have one, as JSON.

        None: all of them except the time of the last write, which every write sets.
        """
        if names is None:
            names = [name for name in (*self._generators, *self._defaults) if name != self.updated]
        generated = self._generate(name for name in names if name in self._generators)
        return self.encode(
            generated | {name: self._defaults[name] for name in names if name not in generated}
        )

    def stamped(self, values: Values) -> Values:
        """Add the write time to the values of a write, if the class has a field for it."""
        return values if self.updated is None else values | self._generate((self.updated,))

    def _generate(self, names: Iterable[str]) -> Values:
        """Return values for one write, all with the same time."""
        now = datetime.now(UTC)
        return {name: self._generators[name](now) for name in names}

    def decode_fields(self, body: Any, pointer: str = "") -> Values:
        """Decode some of the fields; raises `Invalid` with the location of every error."""
        try:
            return self._decode(body)
        except (KeyError, InvalidValue):
            raise invalid(self._errors(body, pointer)) from None

    def decode(self, field_name: str, json: Any, pointer: str) -> Value:
        """Decode a value of one field; raises `Invalid`, its locations below `pointer`."""
        try:
            return self._member((field_name, json))
        except InvalidValue as error:
            raise invalid(locations_below(pointer, error)) from None

    def encode(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return the values as JSON for orjson; unchanged values are shared, not copied."""
        body: dict[str, Any] = dict(values)
        for name, encode in self._encoders:
            if (value := body.get(name)) is not None:
                body[name] = encode(value)
        return body

    def encode_all(self, documents: Sequence[dict[str, Any]]) -> None:
        """Replace the values of documents by their JSON; other members stay."""
        for name, encode in self._encoders:
            for body in documents:
                if (value := body.get(name)) is not None:
                    body[name] = encode(value)

    @property
    def is_plain(self) -> bool:
        """Whether every value is JSON already, so that nothing needs encoding."""
        return not self._encoders

    def _decode(self, body: Any) -> Values:
        if type(body) is not dict:
            raise InvalidValue("must be a JSON object")
        decoders, nullable = self.decoders, self.nullable
        return {
            name: None if raw is None and name in nullable else decoders[name](raw)
            for name, raw in body.items()
        }

    def _errors(self, body: Any, pointer: str) -> list[Location]:
        if type(body) is not dict:
            return [Location(pointer, "must be a JSON object")]
        try:
            raise_errors(((token(str(member[0])), member) for member in body.items()), self._member)
        except InvalidValue as error:
            return locations_below(pointer, error)

    def _member(self, member: tuple[str, Any]) -> Value:
        name, raw = member
        if name not in self.decoders:
            raise InvalidValue(f"is no field of this class{did_you_mean(name, self.decoders)}")
        if raw is None and name in self.nullable:
            return None
        value: Value = self.decoders[name](raw)
        return value

    def _missing_fields(self, present: Any, pointer: str) -> Iterator[Location]:
        if type(present) is dict:
            for name in sorted(self._required - present.keys()):
                yield Location(pointer + token(name), "is required")
