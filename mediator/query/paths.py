"""Paths: the field, its type, how constants compared with it are decoded, and positions as JSON.

Positions, which cursors hold, distinguish a missing value, a null and a value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from mediator.base.errors import Invalid, Location
from mediator.base.suggestions import did_you_mean
from mediator.model.filters import ID, Path
from mediator.model.query import Position
from mediator.query.json_node import Node
from mediator.schema.constraints import unconstrained
from mediator.schema.documents import document
from mediator.schema.errors import InvalidValue
from mediator.schema.limits import DOCUMENT_DEPTH, INTEGER_MAX, INTEGER_MIN
from mediator.schema.scalars import string_decoder
from mediator.schema.tree import MISSING, ClassSchema, Field, MissingType
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.schema.values import decoder, encoder, item_decoder

__all__ = [
    "JSON_SCALAR",
    "NameScope",
    "ResolvedPath",
    "decode_position",
    "encode_position",
    "only_member",
    "path_of_field",
    "resolve_path",
    "row_document",
]

_ANY_LENGTH: Final = 2**31
_MAX_SEGMENTS: Final = len(("field", "key")) + DOCUMENT_DEPTH


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """The target of a path.

    Attributes:
        type: Its type; None within a document, where any JSON value can be.
        decode: From a JSON constant to a value of the type, null excepted; raises `InvalidValue`.
        encode: From a value to JSON; None if it is JSON already.
        item: Decodes an element of the target; or a substring, of a string.
        reference: The class that a reference points to.
    """

    path: Path
    type: FieldType | None
    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any] | None = None
    item: Callable[[Any], Any] | None = None
    reference: str | None = None

    @property
    def is_scalar(self) -> bool:
        """Whether its values have an order, or can have one."""
        return self.type is None or self.type in SCALARS

    def to_json(self, value: Value) -> Any:
        return value if self.encode is None or value is None else self.encode(value)

    def from_json(self, json: Any) -> Any:
        """Return the value of a JSON form; raises `InvalidValue`."""
        return None if json is None else self.decode(json)


def JSON_SCALAR(raw: Any) -> Any:  # noqa: N802 - decoders are constants
    """Decode a constant that is compared with a value within a document."""
    if isinstance(raw, list | dict):
        raise InvalidValue("must be a string, a number, true or false")
    try:
        return document({"constant": raw})["constant"]
    except InvalidValue as error:
        raise InvalidValue(error.locations[0].detail) from None


_TEXT: Final = string_decoder(_ANY_LENGTH)
_ID_PATH: Final = ResolvedPath(ID, FieldType.STRING, _TEXT, item=_TEXT)


def path_of_field(path: Path, field_: Field) -> ResolvedPath:
    """Return a whole field as the target; its constraints do not bind constants."""
    free = unconstrained(field_)
    item: Callable[[Any], Any] | None = None
    if field_.type in {FieldType.LIST, FieldType.SET}:
        item = item_decoder(field_)
    elif field_.type is FieldType.STRING:
        item = _TEXT
    return ResolvedPath(path, field_.type, decoder(free), encoder(free), item, field_.to)


@dataclass(frozen=True, slots=True)
class NameScope:
    """The names that a query may use.

    Attributes:
        joined: The classes joined, by alias.
        lists: Aliases of joins that add lists.
        computed: Results of an aggregate, by name; if set, only they and `groups` are known.
        groups: The grouping paths of an aggregate, by path.
        is_known: Whether the client knows the class, so that its fields can be suggested.
    """

    schema: ClassSchema
    joined: Mapping[str, ClassSchema] = field(default_factory=dict)
    lists: Collection[str] = ()
    computed: Mapping[str, ResolvedPath] | None = None
    groups: Mapping[str, ResolvedPath] = field(default_factory=dict)
    is_known: bool = True

    def find(self, path: str) -> ResolvedPath:
        """Resolve a path; raises `InvalidValue` if it is unknown."""
        if self.computed is not None:
            target = self.computed.get(path) or self.groups.get(path)
            if target is None:
                suggestion = did_you_mean(path, (*self.computed, *self.groups))
                raise InvalidValue(f"is neither computed nor grouped by{suggestion}")
            return target
        names = tuple(path.split("."))
        if names[0] in self.joined:
            # The client may not be allowed to know the fields of a joined class.
            inner = _within(self.joined[names[0]], names[1:], ())
            return replace(inner, path=(names[0], *inner.path))
        if names[0] in self.lists:
            raise InvalidValue(f"leads into the list {names[0]}, which conditions cannot use")
        suggested = (*self.schema.fields, *self.joined, *ID) if self.is_known else ()
        return _within(self.schema, names, suggested)


def resolve_path(node: Node, scope: NameScope) -> ResolvedPath | None:
    """Resolve the path at a node; errors are reported at the node."""
    if not isinstance(node.value, str):
        node.error("must be a path")
        return None
    try:
        return scope.find(node.value)
    except InvalidValue as error:
        node.error(error.locations[0].detail)
        return None


def only_member(node: Node, known: Collection[str], kind: str) -> str | None:
    """Return the name of the only member of an object; errors are reported at the node."""
    if not isinstance(node.value, dict) or len(node.value) != 1:
        node.error(f"must be an object with one {kind}")
        return None
    [name] = node.value
    if name not in known:
        node[name].unknown(f"is no {kind}; known: {', '.join(sorted(known))}", name, known)
        return None
    return str(name)


def _within(schema: ClassSchema, names: Path, known: Iterable[str]) -> ResolvedPath:
    if names == ID:
        return _ID_PATH
    if not names or names[0] not in schema.fields:
        suggestion = did_you_mean(names[0], known) if names else ""
        raise InvalidValue(f"is no field of {schema.name}{suggestion}")
    field_ = schema.fields[names[0]]
    if len(names) > _MAX_SEGMENTS:
        raise InvalidValue(f"leads deeper than {DOCUMENT_DEPTH} levels of a document")
    if len(names) == 1:
        return path_of_field(names, field_)
    if field_.type is FieldType.DOCUMENT:
        return ResolvedPath(names, None, JSON_SCALAR, item=JSON_SCALAR)
    if field_.type is FieldType.MAP:
        return _within_map(field_, names)
    raise InvalidValue(f"leads into {names[0]}, which is not a document")


def _within_map(field_: Field, names: Path) -> ResolvedPath:
    assert field_.items is not None
    if field_.items is FieldType.DOCUMENT and len(names) > len(("field", "key")):
        return ResolvedPath(names, None, JSON_SCALAR, item=JSON_SCALAR)
    if len(names) > len(("field", "key")):
        raise InvalidValue(f"leads into an item of {names[0]}, which is not a document")
    return path_of_field(names, Field(names[-1], field_.items))


def row_document(
    columns: Mapping[str, ResolvedPath], values: Iterable[Value | MissingType]
) -> dict[str, Any]:
    """Return values of columns as JSON for orjson; missing values are left out, as in objects."""
    return {
        name: _number(target.to_json(value))
        for (name, target), value in zip(columns.items(), values, strict=True)
        if not isinstance(value, MissingType)
    }


def _number(value: Any) -> Any:
    """Pass integers beyond 64 bits, such as sums, which orjson refuses."""
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        return orjson.Fragment(str(value).encode())
    return value


def encode_position(levels: Sequence[ResolvedPath], position: Position) -> list[Any]:
    """Return a position as JSON: the id, then for each level an array with the value, if any."""
    pairs = zip(levels, position.values, strict=True)
    return [position.id, *(_encode_level(level, value) for level, value in pairs)]


def decode_position(levels: Sequence[ResolvedPath], json: Sequence[Any]) -> Position:
    """Return the position that `encode_position` wrote for the same levels.

    Raises:
        Invalid: A level was of another type when it was written.
    """
    id_, *values = json
    pairs = zip(levels, values, strict=True)
    try:
        return Position(tuple([_decode_level(level, value) for level, value in pairs]), id_)
    except InvalidValue:
        locations = [Location("after", "belongs to an earlier schema")]
        raise Invalid("The cursor does not belong to this query.", locations=locations) from None


def _encode_level(level: ResolvedPath, value: Value | MissingType) -> list[Any]:
    return [] if isinstance(value, MissingType) else [level.to_json(value)]


def _decode_level(level: ResolvedPath, json: list[Any]) -> Value | MissingType:
    if not json:
        return MISSING
    value: Value = level.from_json(json[0])
    return value
