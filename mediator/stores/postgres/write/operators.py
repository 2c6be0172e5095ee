"""Operators as SQL expressions, exact on their types, each with its refusal conditions.

Refusals are tested before the value is computed, so that no error ends the statement: a refused
call must not roll back the others of its statement. The exception is float arithmetic, where the
server raises on overflow (and on underflow, which is not refused): see `floats`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from mediator.model.operators import WITHOUT_ARGUMENT, Operator
from mediator.schema.constraints import ABOVE_MAXIMUM, BELOW_MINIMUM
from mediator.schema.limits import (
    DECIMAL_DIGITS,
    DECIMAL_MAX_EXPONENT,
    DECIMAL_MIN_EXPONENT,
    INTEGER_MAX,
    INTEGER_MIN,
)
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.postgres.codec import Codec, field_codec, item_codec
from mediator.stores.postgres.sql import constant, number

__all__ = ["REMOVING", "AppliedOperator", "apply", "operator_codec"]

Expression: TypeAlias = sa.ColumnElement[Any]

REMOVING: Final = frozenset({Operator.POP, Operator.SHIFT, Operator.REMOVE})
"""Operators that leave null and missing unchanged."""

_INTEGER_BITS: Final = {Operator.BIT_AND: "&", Operator.BIT_OR: "|", Operator.BIT_XOR: "#"}
_GROWING: Final = frozenset({Operator.PUSH, Operator.PUSH_FRONT, Operator.ADD_TO_SET, Operator.PUT})


@dataclass(frozen=True, slots=True)
class AppliedOperator:
    """An operator on a column.

    Attributes:
        value: The new value.
        refusals: The conditions that refuse it, by `OperatorFailure.reason`.
    """

    value: Expression
    refusals: Mapping[str, Expression] = field(default_factory=dict)


def operator_codec(field: Field, operator: Operator) -> Codec | None:
    """Return the codec of the operator's argument; None if it has none."""
    if operator in WITHOUT_ARGUMENT:
        return None
    if operator is Operator.REMOVE and field.type is FieldType.MAP:
        return Codec(sa.Text(collation="C"))
    return field_codec(field) if operator is Operator.PUT else item_codec(field)


def apply(
    field: Field, operator: Operator, column: Expression, argument: Expression | None
) -> AppliedOperator:
    """Apply an operator to a column of the old row; `argument` is a parameter."""
    if operator in _ARITHMETIC:
        return _arithmetic(field, operator, column, argument)
    value = _EXPRESSIONS[operator](field, column, argument)
    if operator in _NUMERIC:
        return AppliedOperator(value, _bound_violations(field, value))
    if operator not in _GROWING or field.max_length is None:
        return AppliedOperator(value)
    is_too_long = _size(field, value) > number(field.max_length)
    if operator is Operator.ADD_TO_SET:
        is_too_long = sa.and_(is_too_long, sa.not_(sa.any_(_items(field, column)) == argument))
    return AppliedOperator(value, {"too_long": is_too_long})


def _bound_violations(field: Field, value: Expression) -> dict[str, Expression]:
    """Return the conditions that a result is below the field's minimum or above its maximum."""
    type_: Any = sa.Double() if field.type is FieldType.FLOAT else sa.Numeric()
    refusals = {}
    if field.minimum is not None:
        refusals[BELOW_MINIMUM] = value < sa.cast(constant(str(field.minimum)), type_)
    if field.maximum is not None:
        refusals[ABOVE_MAXIMUM] = value > sa.cast(constant(str(field.maximum)), type_)
    return refusals


def _arithmetic(
    field: Field, operator: Operator, column: Expression, argument: Any
) -> AppliedOperator:
    present = sa.func.coalesce(column, sa.literal_column("0"), type_=column.type)
    value = _ARITHMETIC[operator](present, argument)
    if field.type is FieldType.FLOAT:
        # Adding zero removes the sign of a negative zero, which no store has to keep.
        value = value + sa.literal_column("0", sa.Double())
        return AppliedOperator(value, _bound_violations(field, value))
    wide = _ARITHMETIC[operator](sa.cast(present, sa.Numeric()), sa.cast(argument, sa.Numeric()))
    overflow = _exceeds_integer(wide) if field.type is FieldType.INTEGER else _exceeds_decimal(wide)
    return AppliedOperator(value, {"overflow": overflow, **_bound_violations(field, wide)})


def _exceeds_integer(result: Expression) -> Expression:
    low, high = (sa.literal_column(str(n), sa.Numeric()) for n in (INTEGER_MIN, INTEGER_MAX))
    return sa.not_(result.between(low, high))


def _exceeds_decimal(result: Expression) -> Expression:
    """Whether decimal128 cannot hold a number exactly (IEEE 754-2008, 3.6)."""
    size = sa.func.abs(result, type_=sa.Numeric())
    digits = sa.func.translate(sa.cast(size, sa.Text()), ".", "", type_=sa.Text())
    significant = sa.func.length(sa.func.btrim(digits, "0"), type_=sa.Integer())
    high = sa.literal_column(f"1e{DECIMAL_MAX_EXPONENT + 1}", sa.Numeric())
    low = sa.literal_column(f"1e{DECIMAL_MIN_EXPONENT}", sa.Numeric())
    tiny = sa.and_(size < low, size != sa.literal_column("0", sa.Numeric()))
    return sa.or_(significant > DECIMAL_DIGITS, size >= high, tiny)


def _size(field: Field, value: Expression) -> Expression:
    if field.type is not FieldType.MAP:
        return sa.func.cardinality(value, type_=sa.Integer())
    keys = sa.func.jsonb_object_keys(value).column_valued("key")
    return sa.select(sa.func.count(keys)).scalar_subquery()


def _items(field: Field, column: Expression) -> Expression:
    """Return the collection, empty where it is missing or null."""
    empty: Expression = sa.literal_column("'{}'")
    return sa.func.coalesce(column, sa.cast(empty, field_codec(field).type), type_=column.type)


def _push(field: Field, column: Expression, item: Any) -> Expression:
    return sa.func.array_append(_items(field, column), item, type_=column.type)


def _push_front(field: Field, column: Expression, item: Any) -> Expression:
    return sa.func.array_prepend(item, _items(field, column), type_=column.type)


def _pop(_: Field, column: Expression, __: Any) -> Expression:
    last = sa.func.cardinality(column, type_=sa.Integer()) - sa.literal_column("1", sa.Integer())
    return column[sa.literal_column("1", sa.Integer()) : last]


def _shift(_: Field, column: Expression, __: Any) -> Expression:
    end = sa.func.cardinality(column, type_=sa.Integer())
    return column[sa.literal_column("2", sa.Integer()) : end]


def _remove(field: Field, column: Expression, item: Any) -> Expression:
    if field.type is FieldType.MAP:
        return column.op("-", return_type=JSONB())(item)
    return sa.func.array_remove(column, item, type_=column.type)


def _add_to_set(field: Field, column: Expression, item: Any) -> Expression:
    """Insert an item in order, unless the set has an equal one."""
    items = _items(field, column)
    assert isinstance(column.type, ARRAY)
    member = sa.func.unnest(_push(field, column, item), type_=column.type.item_type)
    element = member.column_valued("item")
    ordered = sa.func.array_agg(
        sa.dialects.postgresql.aggregate_order_by(element, element), type_=column.type
    )
    grown = sa.select(ordered).scalar_subquery()
    return sa.case((item == sa.any_(items), items), else_=grown)


def _put(field: Field, column: Expression, entries: Any) -> Expression:
    return _items(field, column).op("||", return_type=JSONB())(entries)


def _now(_: Field, column: Expression, __: Any) -> Expression:
    return sa.func.clock_timestamp(type_=column.type)


def _bits(symbol: str) -> Callable[[Field, Expression, Any], Expression]:
    def expression(_: Field, column: Expression, argument: Any) -> Expression:
        present = sa.func.coalesce(column, sa.literal_column("0"), type_=column.type)
        return present.op(symbol, return_type=column.type)(argument)

    return expression


_ARITHMETIC: Final[dict[Operator, Callable[[Any, Any], Expression]]] = {
    Operator.INC: lambda a, b: a + b,
    Operator.MUL: lambda a, b: a * b,
}
_NUMERIC: Final = frozenset({*_ARITHMETIC, *_INTEGER_BITS, Operator.MIN, Operator.MAX})
_EXPRESSIONS: Final[dict[Operator, Callable[[Field, Expression, Any], Expression]]] = {
    # LEAST and GREATEST ignore nulls: a missing field takes the argument.
    Operator.MIN: lambda _, column, b: sa.func.least(column, b, type_=column.type),
    Operator.MAX: lambda _, column, b: sa.func.greatest(column, b, type_=column.type),
    Operator.PUSH: _push,
    Operator.PUSH_FRONT: _push_front,
    Operator.POP: _pop,
    Operator.SHIFT: _shift,
    Operator.REMOVE: _remove,
    Operator.ADD_TO_SET: _add_to_set,
    Operator.PUT: _put,
    Operator.NOW: _now,
    **{operator: _bits(symbol) for operator, symbol in _INTEGER_BITS.items()},
}
