"""Arguments of writes: the change of one field, and how its argument is added to a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from mediator.model.operators import APPLICABLE, WITHOUT_ARGUMENT, Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import StoreRefused
from mediator.stores.redis.codec import NULL, item_encoder, members, scalar_encoder

__all__ = [
    "AddArgument",
    "FieldChange",
    "Row",
    "absence",
    "change_of_operator",
    "change_of_value",
    "length_prefixed",
    "supports",
]

Row: TypeAlias = list[Any]
AddArgument: TypeAlias = Callable[[Row, Any], None]

_INEXACT = frozenset({Operator.INC, Operator.MUL, Operator.MIN, Operator.MAX})
_REMOVALS = {
    FieldType.LIST: "remove_items",
    FieldType.SET: "remove_member",
    FieldType.MAP: "remove_key",
}
_OF_ITEMS = frozenset({Operator.PUSH, Operator.PUSH_FRONT, Operator.ADD_TO_SET})


def supports(operator: Operator, type_: FieldType) -> bool:
    """Whether the scripts apply the operator exactly; Lua has no exact decimals."""
    exact = type_ is not FieldType.DECIMAL or operator not in _INEXACT
    return exact and type_ in APPLICABLE[operator]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The change of one field, and how its argument is added to a row."""

    field: str
    code: str
    limit: int | str
    arity: str
    add_argument: AddArgument


def length_prefixed(texts: Any) -> tuple[Any, ...]:
    return (len(texts), *texts)


def absence(name: str) -> FieldChange:
    return FieldChange(name, "-", "", "0", _no_argument)


def change_of_value(field: Field, value: Any) -> FieldChange:
    if field.type not in _REMOVALS:
        return FieldChange(field.name, "=", "", "1", _text(scalar_encoder(field.type)))
    if value is None:
        return FieldChange(field.name, "=", "", "1", _text(str))
    return FieldChange(field.name, "collection", "", "n", _members(field, 0))


def change_of_operator(field: Field, call: OperatorCall) -> FieldChange:
    """Return the change of an operator; raises `StoreRefused` if it is not exact."""
    operator = call.operator
    if not supports(operator, field.type):
        raise StoreRefused(f"Redis cannot apply {operator} to {field.type} exactly")
    limit = _bounds(field) or ("" if field.max_length is None else field.max_length)
    if operator is Operator.REMOVE:
        add = _plain if field.type is FieldType.MAP else _text(item_encoder(field.items))
        return FieldChange(field.name, _REMOVALS[field.type], limit, "1", add)
    if operator in WITHOUT_ARGUMENT:
        return FieldChange(field.name, operator.value, limit, "0", _no_argument)
    if operator is Operator.PUT:
        return FieldChange(field.name, operator.value, limit, "n", _members(field, 1))
    items = operator in _OF_ITEMS
    encoder = item_encoder(field.items) if items else scalar_encoder(field.type)
    return FieldChange(field.name, operator.value, limit, "1", _text(encoder))


def _bounds(field: Field) -> str:
    """Return the minimum and maximum of a field, if it is bounded.

    Either can be empty; ``operators.lua`` reads them.
    """
    if not field.is_bounded:
        return ""
    encode = scalar_encoder(field.type)
    return " ".join("" if b is None else str(encode(b)) for b in (field.minimum, field.maximum))


def _no_argument(row: Row, value: Any) -> None:
    """Add nothing: the change has no argument."""


def _plain(row: Row, value: Any) -> None:
    row.append(value)


def _text(encoder: Callable[[Any], str | bytes]) -> AddArgument:
    def add(row: Row, value: Any) -> None:
        row.append(NULL if value is None else encoder(value))

    return add


def _members(field: Field, first: int) -> AddArgument:
    """Return a function that adds a collection with its marker (`first` 0) or without (1)."""

    def add(row: Row, value: Any) -> None:
        row += length_prefixed(members(value, field)[first:])

    return add
