"""Outbox entries: the effect of a write, as a text that can be replayed.

Each write has one short text, because a server copies whole documents with every update, and opaque
values cost it least. The text is a JSON array: the operation, the first letter of the kind, the
store's clock, the written groups (or their versions, if these differ from the clock), then the set
values, the unset fields, and the operators with their arguments. Values are in their JSON form, as
in a `Change`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mediator.model.operators import WITHOUT_ARGUMENT, Operator, OperatorCall
from mediator.schema.scalars import SCALAR_ENCODERS
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.schema.values import encoder
from mediator.stores.port import Fragment, Write, WriteKind

__all__ = ["EntryEncoder", "OutboxEntry", "convert_argument", "json_encoder"]

_KINDS: Final = {kind.name[0].lower(): kind for kind in WriteKind}
_LETTERS: Final = {kind: letter for letter, kind in _KINDS.items()}

_Encode = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A write as its entry records it; see also `Write`.

    Attributes:
        operation: The operation's id.
        kind: The kind of the write.
        stamp: The store's clock, in microseconds.
        versions: The written groups, with their versions.
        sets: The set values, in JSON form.
        unset: The removed fields.
        operators: The operators, with arguments in JSON form.
    """

    operation: str
    kind: WriteKind
    stamp: int
    versions: Mapping[str, int]
    sets: Mapping[str, Any]
    unset: tuple[str, ...]
    operators: tuple[OperatorCall, ...]

    @classmethod
    def read(cls, text: str) -> OutboxEntry:
        operation, letter, stamp, written, sets, unset, operators = orjson.loads(text)
        versions = dict.fromkeys(written, stamp) if isinstance(written, list) else written
        calls = tuple(OperatorCall(name, Operator(word), value) for name, word, value in operators)
        return cls(operation, _KINDS[letter], stamp, versions, sets, tuple(unset), calls)


class EntryEncoder:
    """Encodes the entries of one fragment."""

    __slots__ = ("_arguments", "_fields", "_values")

    def __init__(self, fragment: Fragment) -> None:
        fields = self._fields = fragment.fields
        self._values: Mapping[str, _Encode | None] = {n: json_encoder(f) for n, f in fields.items()}
        self._arguments: Mapping[str, _Encode | None] = {
            name: SCALAR_ENCODERS.get(field.items or field.type) for name, field in fields.items()
        }

    def text(self, write: Write, versions: Mapping[str, int], stamp: int) -> str:
        """Return the entry of a write whose groups get at least these versions."""
        groups: Any = write.groups
        if any(versions[group] != stamp for group in groups):
            groups = {group: versions[group] for group in groups}
        fields, arguments = self._fields, self._arguments
        operators = [
            (
                call.field,
                call.operator,
                convert_argument(fields[call.field], call, arguments[call.field]),
            )
            for call in write.operators
        ]
        sets, letter = self.values(write.values), _LETTERS[write.kind]
        entry = (write.operation, letter, stamp, groups, sets, write.unset, operators)
        return orjson.dumps(entry).decode()

    def values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.value(name, value) for name, value in values.items()}

    def value(self, name: str, value: Any) -> Any:
        """Return a field's value in its JSON form."""
        encode = self._values[name]
        return value if encode is None or value is None else encode(value)


def convert_argument(field: Field, call: OperatorCall, convert: _Encode | None) -> Any:
    """Return the argument of an operator with its items converted."""
    argument: Any = call.argument
    if convert is None or call.operator in WITHOUT_ARGUMENT:
        return argument
    if field.type is not FieldType.MAP:
        return convert(argument)
    if call.operator is Operator.PUT:
        return {key: convert(member) for key, member in argument.items()}
    return argument


def json_encoder(field: Field) -> _Encode | None:
    """Return the JSON encoder of a field's values; None: they are JSON already."""
    encode = encoder(field)
    if field.type is not FieldType.SET:
        return encode
    return lambda value: (encode or list)(sorted(set(value)))
