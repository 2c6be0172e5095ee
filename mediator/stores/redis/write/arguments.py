"""Arguments of writes: what becomes of one field, and how its argument joins a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from mediator.model.operators import APPLICABLE, Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import StoreRefused
from mediator.stores.redis.codec import NULL, item_encoder, members, scalar_encoder

__all__ = [
    "AddArgument",
    "Change",
    "Row",
    "absence",
    "change_of_operator",
    "change_of_value",
    "listed",
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
_WITHOUT_ARGUMENT = frozenset({Operator.POP, Operator.SHIFT, Operator.NOW})


def supports(operator: Operator, type_: FieldType) -> bool:
    """Whether the scripts apply the operator exactly; there are no exact decimals in Lua."""
    exact = type_ is not FieldType.DECIMAL or operator not in _INEXACT
    return exact and type_ in APPLICABLE[operator]


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one field, and how its argument joins a row."""

    field: str
    code: str
    limit: int | str
    arity: str
    add_argument: AddArgument


def listed(texts: Any) -> tuple[Any, ...]:
    """Return a count and so many texts."""
    return (len(texts), *texts)


def absence(name: str) -> Change:
    """Remove a field."""
    return Change(name, "-", "", "0", _nothing)


def change_of_value(field: Field, value: Any) -> Change:
    """Set a field."""
    if field.type not in _REMOVALS:
        return Change(field.name, "=", "", "1", _text(scalar_encoder(field.type)))
    if value is None:
        return Change(field.name, "=", "", "1", _text(str))
    return Change(field.name, "collection", "", "n", _collection(field))


def change_of_operator(field: Field, call: OperatorCall) -> Change:
    """Apply an operator to a field; raises `StoreRefused` if that is not exact."""
    operator = call.operator
    if not supports(operator, field.type):
        raise StoreRefused(f"Redis cannot apply {operator} to {field.type} exactly")
    limit: int | str = "" if field.max_length is None else field.max_length
    if operator is Operator.REMOVE:
        add = _plain if field.type is FieldType.MAP else _text(item_encoder(field.items))
        return Change(field.name, _REMOVALS[field.type], limit, "1", add)
    if operator in _WITHOUT_ARGUMENT:
        return Change(field.name, operator.value, limit, "0", _nothing)
    if operator is Operator.PUT:
        return Change(field.name, operator.value, limit, "n", _entries(field))
    items = operator in _OF_ITEMS
    encoder = item_encoder(field.items) if items else scalar_encoder(field.type)
    return Change(field.name, operator.value, limit, "1", _text(encoder))


def _nothing(row: Row, value: Any) -> None:
    """Add nothing: the change has no argument."""


def _plain(row: Row, value: Any) -> None:
    row.append(value)


def _text(encoder: Callable[[Any], str | bytes]) -> AddArgument:
    def add(row: Row, value: Any) -> None:
        row.append(NULL if value is None else encoder(value))

    return add


def _collection(field: Field) -> AddArgument:
    def add(row: Row, value: Any) -> None:
        row += listed(members(value, field))

    return add


def _entries(field: Field) -> AddArgument:
    def add(row: Row, value: Any) -> None:
        row += listed(members(value, field)[1:])

    return add
