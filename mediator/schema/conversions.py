"""Conversions of values between fields of different types: exact, or refused.

A conversion leads from the JSON form of one type to that of another, which the decoder of the field
then reads: so its constraints hold as for any write. A total conversion accepts every value of its
type, a partial one refuses some; none rounds or shortens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from mediator.schema.errors import InvalidValue
from mediator.schema.scalars import SCALAR_DECODERS
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Value
from mediator.schema.values import decoder, encoder

__all__ = ["PARTIAL", "TOTAL", "Conversion", "conversion"]

_Step: TypeAlias = Callable[[Any], Any]
"""From the JSON form of a value to that of another type, or raises `InvalidValue`."""

_Pair: TypeAlias = tuple[FieldType, FieldType]

_INTEGER: Final = re.compile("-?(0|[1-9][0-9]{0,18})")
_TRUTH: Final = {"true": True, "false": False}
_NOT_EXACT: Final = "has no exact form in the type of the field"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion from one field to another.

    Attributes:
        convert: Takes a value that is not null; raises `InvalidValue` if it does not fit.
        is_total: Whether all values convert; constraints of the field may refuse some even then.
    """

    convert: Callable[[Any], Value]
    is_total: bool


def conversion(source: Field, target: Field) -> Conversion | None:
    """Return the conversion of one field's values to another's; None if there is none."""
    typed_step = _field_step(source, target)
    if typed_step is None:
        return None
    step, is_total = typed_step
    encode, decode = encoder(source) or _same, decoder(target)
    return Conversion(lambda value: decode(step(encode(value))), is_total)


def _field_step(source: Field, target: Field) -> tuple[_Step, bool] | None:
    if source.items is None:
        if target.items is None:
            return _type_step(source.type, target.type)
        if target.type is FieldType.MAP:
            return None
        # A scalar becomes the one element of a list or a set.
        return _lifted(_type_step(source.type, target.items), lambda step: lambda raw: [step(raw)])
    if target.items is None or (source.type, target.type) not in _COLLECTIONS:
        return None
    lift = _lift_to_members if source.type is FieldType.MAP else _lift_to_elements
    return _lifted(_type_step(source.items, target.items), lift)


def _lifted(
    typed_step: tuple[_Step, bool] | None, lift: Callable[[_Step], _Step]
) -> tuple[_Step, bool] | None:
    return None if typed_step is None else (lift(typed_step[0]), typed_step[1])


def _type_step(source: FieldType, target: FieldType) -> tuple[_Step, bool] | None:
    if source is target:
        return _same, True
    pair = (source, target)
    if (step := TOTAL.get(pair)) is not None:
        return step, True
    return None if (step := PARTIAL.get(pair)) is None else (step, False)


def _lift_to_elements(step: _Step) -> _Step:
    return lambda raw: [step(element) for element in raw]


def _lift_to_members(step: _Step) -> _Step:
    return lambda raw: {key: step(member) for key, member in raw.items()}


def _same(raw: Any) -> Any:
    return raw


def _float_of_integer(raw: int) -> float:
    value = float(raw)
    if int(value) != raw:
        raise InvalidValue(_NOT_EXACT)
    return value


def _integer_of_float(raw: float) -> int:
    if not raw.is_integer():
        raise InvalidValue(_NOT_EXACT)
    return int(raw)


def _integer_of_decimal(raw: str) -> int:
    value = Decimal(raw)
    if value != value.to_integral_value():
        raise InvalidValue(_NOT_EXACT)
    return int(value)


def _float_of_decimal(raw: str) -> float:
    # The shortest text of a double stands for it, as it does in JSON.
    value = float(raw)
    if Decimal(repr(value)) != Decimal(raw):
        raise InvalidValue(_NOT_EXACT)
    return value


def _float_of_text(raw: str) -> float:
    SCALAR_DECODERS[FieldType.DECIMAL](raw)
    return _float_of_decimal(raw)


def _integer_of_text(raw: str) -> int:
    if not _INTEGER.fullmatch(raw):
        raise InvalidValue("is not an integer, such as -12")
    return int(raw)


def _boolean_of_text(raw: str) -> bool:
    if raw not in _TRUTH:
        raise InvalidValue("is neither true nor false")
    return _TRUTH[raw]


TOTAL: Final[Mapping[_Pair, _Step]] = {
    (FieldType.INTEGER, FieldType.DECIMAL): str,
    (FieldType.FLOAT, FieldType.DECIMAL): repr,
    (FieldType.INTEGER, FieldType.STRING): str,
    (FieldType.FLOAT, FieldType.STRING): repr,
    (FieldType.DECIMAL, FieldType.STRING): _same,
    (FieldType.BOOLEAN, FieldType.STRING): lambda raw: "true" if raw else "false",
    (FieldType.TIMESTAMP, FieldType.STRING): _same,
    (FieldType.BINARY, FieldType.STRING): _same,
    (FieldType.REFERENCE, FieldType.STRING): _same,
}
"""Conversions of every value of a type, by source and target type."""

PARTIAL: Final[Mapping[_Pair, _Step]] = {
    (FieldType.INTEGER, FieldType.FLOAT): _float_of_integer,
    (FieldType.FLOAT, FieldType.INTEGER): _integer_of_float,
    (FieldType.DECIMAL, FieldType.INTEGER): _integer_of_decimal,
    (FieldType.DECIMAL, FieldType.FLOAT): _float_of_decimal,
    (FieldType.STRING, FieldType.INTEGER): _integer_of_text,
    (FieldType.STRING, FieldType.FLOAT): _float_of_text,
    (FieldType.STRING, FieldType.DECIMAL): _same,
    (FieldType.STRING, FieldType.BOOLEAN): _boolean_of_text,
    (FieldType.STRING, FieldType.TIMESTAMP): _same,
    (FieldType.STRING, FieldType.BINARY): _same,
    (FieldType.STRING, FieldType.REFERENCE): _same,
}
"""Conversions of some values. Texts are parsed as the JSON form of the target type."""

_COLLECTIONS: Final = frozenset(
    {
        (FieldType.LIST, FieldType.LIST),
        (FieldType.SET, FieldType.SET),
        (FieldType.SET, FieldType.LIST),
        (FieldType.MAP, FieldType.MAP),
    }
)
"""Convertible collections. A list does not become a set: its order and duplicates would be lost."""
