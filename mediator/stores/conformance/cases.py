"""Cases for the operators: fields, what they hold before, and arguments, at the edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any

from mediator.model.operators import WITHOUT_ARGUMENT, Operator, OperatorCall
from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.tree import MISSING, Field, MissingType
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.stores.conformance.samples import (
    EDGES,
    HOSTILE_TEXTS,
    collection,
    edges_of,
    light,
    plain,
)

__all__ = ["Case", "cases"]


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one field that holds something, or nothing, before."""

    field: Field
    before: Value | MissingType
    call: OperatorCall


_BEFORE: Mapping[FieldType, Sequence[Value]] = {
    FieldType.INTEGER: (0, 1, -7, 2**31, 2**53 + 1, INTEGER_MAX, INTEGER_MIN),
    FieldType.FLOAT: (0.0, 0.1, -1.5, 2.0**53, 5e-324, 1e-300, 1e308, 1.7976931348623157e308),
    FieldType.DECIMAL: tuple(
        map(Decimal, ("0", "0.1", "-1.10", "1E-33", "9" * 34, "-" + "9" * 34, "1" + "0" * 33))
    ),
    FieldType.TIMESTAMP: EDGES[FieldType.TIMESTAMP],
}

_ARGUMENTS: Mapping[FieldType, Sequence[Value]] = {
    FieldType.INTEGER: (0, 1, -1, 3, 2**32, INTEGER_MAX, INTEGER_MIN),
    FieldType.FLOAT: (0.0, 0.2, -1.5, 3.0, 1e-300, 1e308),
    FieldType.DECIMAL: tuple(map(Decimal, ("0", "0.2", "-1", "3", "1E-33", "9" * 34))),
    FieldType.TIMESTAMP: (
        datetime(1, 1, 1, microsecond=2, tzinfo=UTC),
        datetime(2000, 2, 29, 12, 30, 15, 123_457, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC),
    ),
}

_MEMBERS = 4

_NOTHING: tuple[MissingType | None, ...] = (MISSING, None)


def cases(operator: Operator, type_: FieldType) -> Iterator[Case]:
    """Yield the cases of an operator on a type."""
    for field in _fields(type_):
        befores = [*_NOTHING, *_befores(field)]
        for before, argument in product(befores, _arguments(operator, field)):
            yield Case(field, before, OperatorCall(field.name, operator, argument))


def _fields(type_: FieldType) -> Iterator[Field]:
    if type_ in SCALARS:
        yield plain(type_)
        return
    for items in sorted(SCALARS):
        yield collection(type_, items, name=f"of_{items}")
    yield collection(type_, FieldType.INTEGER, name="at_most_two", max_length=2)
    if type_ is FieldType.LIST:
        yield collection(type_, FieldType.DOCUMENT, name="of_document")


def _befores(field: Field) -> Sequence[Value]:
    if field.items is None:
        return _BEFORE[field.type]
    first, second, *_ = _members(field)
    if field.type is FieldType.LIST:
        lists: tuple[Value, ...] = ([], [first], [second, first], [first, second, first])
        return lists[: (field.max_length or len(lists)) + 1]
    if field.type is FieldType.SET:
        full = edges_of(FieldType.SET, field.items)[-1]
        assert isinstance(full, list)
        return ([], [first], full[: field.max_length])
    return ({}, {"a.b": first}, {"a": first, "$x": second})


def _arguments(operator: Operator, field: Field) -> Sequence[Value]:
    if operator in WITHOUT_ARGUMENT:
        return (True,)
    if field.items is None:
        return _ARGUMENTS[field.type]
    members = _members(field)
    if field.type is not FieldType.MAP:
        return members
    if operator is Operator.REMOVE:
        return ("a.b", "a", "$x", "absent")
    return ({}, {"a.b": members[1]}, {"k": members[0], "é": members[1]}, _hostile(members[0]))


def _members(field: Field) -> list[Any]:
    """Return some items of a collection: its first two, the last two, all different."""
    assert field.items is not None
    some = light(field.items)
    return some if len(some) < _MEMBERS else [*some[:2], *some[-2:]]


def _hostile(item: Value) -> dict[str, Value]:
    return dict.fromkeys(HOSTILE_TEXTS, item)
