"""Applying update operators to values: the reference for all stores, and their fallback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final, TypeAlias

from mediator.model.operators import Operator, OperatorCall, OperatorFailure
from mediator.schema.constraints import beyond
from mediator.schema.json_text import as_text
from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.scalars import DECIMAL128, canonical_decimal
from mediator.schema.tree import MISSING, Field, MissingType
from mediator.schema.types import FieldType, Value, Values

__all__ = ["OperatorFailed", "apply_operator", "apply_operators"]

Present: TypeAlias = Any
Step: TypeAlias = Callable[[Field, Any, Any], Any]


class OperatorFailed(Exception):
    """The operator cannot be applied to the current value; the write has no effect."""

    def __init__(self, failure: OperatorFailure) -> None:
        super().__init__(f"{failure.field}: {failure.reason}")
        self.failure = failure


def apply_operator(
    field: Field, value: Value | MissingType, call: OperatorCall, now: datetime
) -> Value | MissingType:
    """Return the value of a field after an operator; `value` itself is never changed in place.

    Removing operators (`pop`, `shift`, `remove`) leave null and missing unchanged; all others
    take null for missing. `call` is applicable to the field's type, and its argument is
    decoded. `now` is the store's clock, UTC; a store may keep milliseconds only.

    Raises:
        OperatorFailed: The result is beyond the field's type (``overflow``), its `max_length`
            (``too_long``), its `minimum` or `maximum` (``below_minimum``, ``above_maximum``).
    """
    if call.operator is Operator.NOW:
        return now
    absent = value is None or value is MISSING
    if absent and call.operator in _REMOVING:
        return value
    start = _start(field, call) if absent else value
    try:
        result: Value = _STEPS[call.operator](field, start, call.argument)
    except ArithmeticError:
        raise OperatorFailed(OperatorFailure(field.name, "overflow")) from None
    if reason := beyond(field, result):
        raise OperatorFailed(OperatorFailure(field.name, reason))
    return result


def apply_operators(
    fields: Mapping[str, Field], calls: Iterable[OperatorCall], current: Values, now: datetime
) -> Values:
    """Return the values that operators compute, each of another field; raises as `apply_operator`.

    A field that stays missing is left out.
    """
    values: Values = {}
    for call in calls:
        before = current.get(call.field, MISSING)
        result = apply_operator(fields[call.field], before, call, now)
        if not isinstance(result, MissingType):
            values[call.field] = result
    return values


def _start(field: Field, call: OperatorCall) -> Present:
    """Return the value that a missing one counts as."""
    if call.operator in {Operator.MIN, Operator.MAX}:
        return call.argument
    return {
        FieldType.INTEGER: 0,
        FieldType.FLOAT: 0.0,
        FieldType.DECIMAL: Decimal(0),
        FieldType.MAP: {},
    }.get(field.type, [])


def _inc(field: Field, value: Present, argument: Any) -> Present:
    if field.type is FieldType.DECIMAL:
        return canonical_decimal(DECIMAL128.add(value, argument))
    return _number(value + argument)


def _mul(field: Field, value: Present, argument: Any) -> Present:
    if field.type is FieldType.DECIMAL:
        return canonical_decimal(DECIMAL128.multiply(value, argument))
    return _number(value * argument)


def _number(result: Present) -> Present:
    if isinstance(result, float):
        if not isfinite(result):
            raise OverflowError
        # As in decoding, -0.0 becomes 0.0: not every store keeps the sign of zero.
        return result + 0.0
    if not INTEGER_MIN <= result <= INTEGER_MAX:
        raise OverflowError
    return result


def _bounded(field: Field, result: Present) -> Present:
    if field.max_length is not None and len(result) > field.max_length:
        raise OperatorFailed(OperatorFailure(field.name, "too_long"))
    return result


def _remove(field: Field, value: Present, argument: Any) -> Present:
    if field.type is FieldType.MAP:
        return {key: member for key, member in value.items() if key != argument}
    if field.items is FieldType.DOCUMENT:
        removed = as_text(argument)
        return [element for element in value if as_text(element) != removed]
    return [element for element in value if element != argument]


_REMOVING: Final = frozenset({Operator.POP, Operator.SHIFT, Operator.REMOVE})
_STEPS: Final[Mapping[Operator, Step]] = {
    Operator.INC: _inc,
    Operator.MUL: _mul,
    Operator.MIN: lambda _field, value, argument: min(value, argument),
    Operator.MAX: lambda _field, value, argument: max(value, argument),
    Operator.PUSH: lambda field, value, argument: _bounded(field, [*value, argument]),
    Operator.PUSH_FRONT: lambda field, value, argument: _bounded(field, [argument, *value]),
    Operator.POP: lambda _field, value, _argument: value[:-1],
    Operator.SHIFT: lambda _field, value, _argument: value[1:],
    Operator.REMOVE: _remove,
    Operator.ADD_TO_SET: lambda field, value, argument: (
        value if argument in value else _bounded(field, sorted([*value, argument]))
    ),
    Operator.PUT: lambda field, value, argument: _bounded(field, {**value, **argument}),
    # Python's integers are two's complement of any width, so 64 bits never overflow.
    Operator.BIT_AND: lambda _field, value, argument: value & argument,
    Operator.BIT_OR: lambda _field, value, argument: value | argument,
    Operator.BIT_XOR: lambda _field, value, argument: value ^ argument,
}
