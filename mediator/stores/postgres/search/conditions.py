"""SQL conditions of filter shapes.

A condition is TRUE exactly where its filter holds; elsewhere it is FALSE or NULL. AND, OR and WHERE
pass that on, and a negation is IS NOT TRUE: so no NULL ever decides, and plain comparisons stay
plain, as indexes need them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, array

from mediator.model.filters import ID
from mediator.schema.tree import Field
from mediator.stores.port import Fragment
from mediator.stores.postgres.layout import (
    INDEXED_CHARACTERS,
    RecordTable,
    element_key,
    indexed_lengths,
    rank,
    sort_key,
)
from mediator.stores.postgres.paths import KINDS, as_text, at_path
from mediator.stores.postgres.read.statements import NULL_RANK, VALUE_RANK
from mediator.stores.postgres.search.predicates import FilterShape, Joined, Negated, Predicate
from mediator.stores.postgres.sql import constant, number, parameter

__all__ = ["column_of", "condition", "named", "rank_of", "served"]

Expression: TypeAlias = sa.ColumnElement[Any]

_TEXT: Final = sa.Text(collation="C")
_SERVED: Final = frozenset({"eq", "lt", "le", "gt", "ge", "between", "among", "null"})
_ENDS: Final = {"lt": "le", "gt": "ge"}
"""What holds for the beginnings of values that compare so."""


def named(constants: Sequence[Any]) -> dict[str, Any]:
    """Name the constants of a filter as its condition names its parameters."""
    return {f"p{i}": value for i, value in enumerate(constants)}


def condition(records: RecordTable, shape: FilterShape, first: int = 0) -> Expression:
    """Return the condition of a shape, its parameters named as by `named`, from `first` on."""
    return _Builder(records, first).build(shape)


def column_of(records: RecordTable, name: str) -> Expression:
    """Return the column of a field, or that of ids."""
    return records.id if name == ID[0] else records.columns[name]


def rank_of(records: RecordTable, name: str) -> Expression:
    """Return whether a field is missing, null or a value, as its index has it."""
    return rank(records.table, name, records.columns[name])


def served(fragment: Fragment, shape: FilterShape) -> bool:
    """Whether an index leads to the records of a shape: a compound one does by its first field."""
    if not isinstance(shape, Predicate) or (shape.keys and not shape.path):
        return False
    if shape.path:
        return True
    if shape.test == "member":
        return fragment.fields[shape.field].has_element_index
    leads = shape.field == ID[0] or shape.field in fragment.leading
    return leads and _is_ordered(shape)


def _is_ordered(predicate: Predicate) -> bool:
    """Whether a test leaves ranges of an index of values in their order."""
    return predicate.test in _SERVED or predicate.prefixed


class _Builder:
    """Builds a condition, numbering its parameters from left to right."""

    def __init__(self, records: RecordTable, first: int) -> None:
        self._records, self._count = records, first

    def build(self, shape: FilterShape) -> Expression:
        if isinstance(shape, Joined):
            parts = [self.build(part) for part in shape.parts]
            return sa.and_(sa.true(), *parts) if shape.every else sa.or_(sa.false(), *parts)
        if isinstance(shape, Negated):
            return self.build(shape.part).is_not(sa.true())
        if shape.keys:
            return self._within(shape)
        if shape.test in ("null", "exists"):
            return self._ranked(shape)
        return self._compared(shape)

    def _parameter(self, type_: Any) -> sa.BindParameter[Any]:
        self._count += 1
        return parameter(f"p{self._count - 1}", type_)

    def _ranked(self, predicate: Predicate) -> Expression:
        null = predicate.test == "null"
        if predicate.field == ID[0]:
            return sa.false() if null else sa.true()
        ranked = rank_of(self._records, predicate.field)
        return ranked == number(NULL_RANK) if null else ranked >= number(NULL_RANK)

    def _compared(self, predicate: Predicate) -> Expression:
        records = self._records
        column = column_of(records, predicate.field)
        given = [self._parameter(type_) for type_ in _types(predicate, column.type)]
        if predicate.test == "member":
            return self._member(predicate, column, *given)
        test = _TESTS[predicate.test](column, *given)
        if predicate.field == ID[0] or not _is_ordered(predicate):
            return test
        field = records.fragment.fields[predicate.field]
        lengths = indexed_lengths(records.fragment, field)
        if not lengths:
            return test
        ranked = rank_of(records, predicate.field) == number(VALUE_RANK)
        if predicate.prefixed:
            key = sort_key(field, column)
            return sa.and_(ranked, key >= given[1], key < given[2], test)
        coarse = (_coarse(predicate, field, column, given, most) for most in lengths)
        return sa.and_(ranked, *chain.from_iterable(coarse), test)

    def _member(self, predicate: Predicate, items: Expression, item: Expression) -> Expression:
        field, test = self._records.fragment.fields[predicate.field], item == sa.any_(items)
        if not field.has_element_index:
            return test
        key = element_key(field, items, self._records.namespace)
        one = sort_key(Field(field.name, field.items or field.type), item)
        some = sa.cast(array([one]), ARRAY(_bare(item.type)))
        held: Expression = key.op("@>", return_type=sa.Boolean())(some)
        return held if key is items else sa.and_(held, test)

    def _within(self, predicate: Predicate) -> Expression:
        column: Expression = self._records.columns[predicate.field]
        if predicate.path:
            return self._indexed(predicate, at_path(column, map(constant, predicate.path)))
        value = at_path(column, [self._parameter(sa.Text()) for _ in range(predicate.keys)])
        if predicate.test == "exists":
            return value.is_not(None)
        if predicate.test == "null":
            return value == sa.cast(constant("null"), JSONB())
        if predicate.kind == "either":
            part = _part(as_text(value), self._parameter(_TEXT))
            return sa.or_(part, _held(value, self._parameter(JSONB())))
        if predicate.test == "member":
            return _held(value, self._parameter(JSONB()))
        viewed = KINDS[predicate.kind][1](value) if predicate.kind else value
        given = [self._parameter(type_) for type_ in _types(predicate, viewed.type)]
        return _TESTS[predicate.test](viewed, *given)

    def _indexed(self, predicate: Predicate, value: Expression) -> Expression:
        """Test a value within a document or a map that has an index."""
        like, view = KINDS[predicate.kind]
        viewed = view(value)
        given = [self._parameter(type_) for type_ in _types(predicate, viewed.type)]
        test = _TESTS[predicate.test](viewed, *given)
        if predicate.prefixed:
            key = sort_key(like, viewed)
            return sa.and_(key >= given[1], key < given[2], test)
        return sa.and_(*_coarse(predicate, like, viewed, given, INDEXED_CHARACTERS), test)


def _coarse(
    predicate: Predicate, field: Field, column: Expression, given: list[Any], most: int
) -> list[Expression]:
    """Return what else holds of the beginning of a value, if that is what an index has."""
    key = sort_key(field, column, most)
    if key is column:
        return []
    if predicate.test != "among":
        test = _TESTS[_ENDS.get(predicate.test, predicate.test)]
        return [test(key, *(sort_key(field, value, most) for value in given))]
    each = sa.func.unnest(given[0], type_=column.type).column_valued("given")
    some = sa.select(sort_key(field, each, most)).scalar_subquery()
    return [key == sa.any_(sa.func.array(some, type_=ARRAY(_bare(column.type))))]


def _types(predicate: Predicate, type_: Any) -> list[Any]:
    """Return the types of the parameters that a test of a value takes."""
    match predicate.test:
        case "between":
            return [type_, type_]
        case "among":
            return [ARRAY(_bare(type_))]
        case "member":
            return [type_.item_type]
        case "like" if predicate.prefixed:
            return [type_, type_, type_]
    return [type_]


def _bare(type_: Any) -> Any:
    """A type without its collation, which no array can be cast to."""
    return sa.Text() if isinstance(type_, sa.Text) else type_


def _held(value: Expression, element: Expression) -> Expression:
    within = value.op("@>", return_type=sa.Boolean())(element)
    return sa.and_(sa.func.jsonb_typeof(value) == constant("array"), within)


def _part(text: Expression, part: Expression) -> Expression:
    return sa.func.strpos(text, part, type_=sa.Integer()) > number(0)


def _like(text: Expression, pattern: Expression, *_: Expression) -> Expression:
    return text.like(pattern, escape="\\")


_TESTS: Final[dict[str, Callable[..., Expression]]] = {
    "eq": operator.eq,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    # BETWEEN takes no COLLATE after its first operand.
    "between": lambda value, low, high: sa.and_(value >= low, value <= high),
    "among": lambda value, some: value == sa.any_(some),
    "like": _like,
    "part": _part,
    "member": lambda items, item: item == sa.any_(items),
}
