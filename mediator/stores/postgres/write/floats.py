"""Float arithmetic at the ends of the type, where PostgreSQL raises an error.

The server raises on overflow, which is a refusal, and on underflow, which is none (IEEE 754 gives
zero or a subnormal). The two have one SQLSTATE, so the values are looked at: the result is computed
here and written on the condition that the record is still what was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from mediator.model.apply import apply_operator
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import FieldType, Value
from mediator.stores.port import Fragment, Record, Write

__all__ = ["by_value", "has_float_arithmetic"]

_NO_CLOCK = datetime(1970, 1, 1, tzinfo=UTC)


def _raises(fragment: Fragment, call: OperatorCall) -> bool:
    arithmetic = call.operator in (Operator.INC, Operator.MUL)
    return arithmetic and fragment.fields[call.field].type is FieldType.FLOAT


def has_float_arithmetic(call: Write) -> bool:
    """Whether the server may have raised for a float."""
    return any(_raises(call.fragment, operator) for operator in call.operators)


def by_value(call: Write, record: Record) -> Write:
    """Return the write with its float arithmetic done, for exactly this state of the record.

    Raises:
        Refused: A result is no finite double.
    """
    fields, values = call.fragment.fields, dict[str, Value](call.values)
    for operator in call.operators:
        if _raises(call.fragment, operator):
            present = record.values.get(operator.field, MISSING)
            value = apply_operator(fields[operator.field], present, operator, _NO_CLOCK)
            assert not isinstance(value, MissingType)
            values[operator.field] = value
    rest = tuple(o for o in call.operators if not _raises(call.fragment, o))
    expect: Mapping[str, int] = record.versions
    return replace(call, values=values, operators=rest, expect=expect)
