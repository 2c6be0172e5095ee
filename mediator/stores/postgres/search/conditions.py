"""SQL conditions of filter shapes.

A condition is TRUE exactly where its filter holds; elsewhere it is FALSE or NULL. AND, OR and WHERE
preserve this, and a negation is IS NOT TRUE. So NULL never counts as TRUE, and comparisons stay in
the plain form that indexes need.
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

__all__ = ["column_of", "condition", "condition_arguments", "is_indexed", "rank_of"]

Expression: TypeAlias = sa.ColumnElement[Any]

_TEXT: Final = sa.Text(collation="C")
_ORDERED_TESTS: Final = frozenset({"eq", "lt", "le", "gt", "ge", "between", "among", "null"})
_TRUNCATED_TESTS: Final = {"lt": "le", "gt": "ge"}
"""The tests that hold for truncated values, where the test itself need not."""


def condition_arguments(constants: Sequence[Any]) -> dict[str, Any]:
    """Return the constants of a filter by the parameter names of its condition."""
    return {f"p{i}": value for i, value in enumerate(constants)}


def condition(records: RecordTable, shape: FilterShape, first: int = 0) -> Expression:
    """Return the condition of a shape; its parameters are numbered from `first` on."""
    return _Builder(records, first).build(shape)


def column_of(records: RecordTable, name: str) -> Expression:
    """Return the column of a field, or of ids."""
    return records.id if name == ID[0] else records.columns[name]


def rank_of(records: RecordTable, name: str) -> Expression:
    """Return the rank of a field (missing, null or value), the same expression as in its index."""
    return rank(records.table, name, records.columns[name])


def is_indexed(fragment: Fragment, shape: FilterShape) -> bool:
    """Whether an index serves a shape; a compound index serves its first field."""
    if not isinstance(shape, Predicate) or (shape.keys and not shape.path):
        return False
    if shape.path:
        return True
    if shape.test == "member":
        return fragment.fields[shape.field].has_element_index
    leads = shape.field == ID[0] or shape.field in fragment.leading
    return leads and _is_ordered(shape)


def _is_ordered(predicate: Predicate) -> bool:
    """Whether a test selects ranges of an ordered index."""
    return predicate.test in _ORDERED_TESTS or predicate.prefixed


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
            return self._path_test(shape)
        if shape.test in ("null", "exists"):
            return self._rank_test(shape)
        return self._comparison(shape)

    def _parameter(self, type_: Any) -> sa.BindParameter[Any]:
        self._count += 1
        return parameter(f"p{self._count - 1}", type_)

    def _rank_test(self, predicate: Predicate) -> Expression:
        null = predicate.test == "null"
        if predicate.field == ID[0]:
            return sa.false() if null else sa.true()
        rank_ = rank_of(self._records, predicate.field)
        return rank_ == number(NULL_RANK) if null else rank_ >= number(NULL_RANK)

    def _comparison(self, predicate: Predicate) -> Expression:
        records = self._records
        column = column_of(records, predicate.field)
        arguments = [self._parameter(type_) for type_ in _types(predicate, column.type)]
        if predicate.test == "member":
            return self._membership(predicate, column, *arguments)
        test = _TESTS[predicate.test](column, *arguments)
        if predicate.field == ID[0] or not _is_ordered(predicate):
            return test
        field = records.fragment.fields[predicate.field]
        lengths = indexed_lengths(records.fragment, field)
        if not lengths:
            return test
        rank_ = rank_of(records, predicate.field) == number(VALUE_RANK)
        if predicate.prefixed:
            key = sort_key(field, column)
            return sa.and_(rank_, key >= arguments[1], key < arguments[2], test)
        coarse = (
            _coarse(predicate, field, column, arguments, max_characters)
            for max_characters in lengths
        )
        return sa.and_(rank_, *chain.from_iterable(coarse), test)

    def _membership(self, predicate: Predicate, items: Expression, item: Expression) -> Expression:
        field, test = self._records.fragment.fields[predicate.field], item == sa.any_(items)
        if not field.has_element_index:
            return test
        key = element_key(field, items, self._records.namespace)
        key_item = sort_key(Field(field.name, field.items or field.type), item)
        key_items = sa.cast(array([key_item]), ARRAY(_bare(item.type)))
        contained: Expression = key.op("@>", return_type=sa.Boolean())(key_items)
        return contained if key is items else sa.and_(contained, test)

    def _path_test(self, predicate: Predicate) -> Expression:
        column: Expression = self._records.columns[predicate.field]
        if predicate.path:
            return self._indexed_path_test(
                predicate, at_path(column, map(constant, predicate.path))
            )
        value = at_path(column, [self._parameter(sa.Text()) for _ in range(predicate.keys)])
        if predicate.test == "exists":
            return value.is_not(None)
        if predicate.test == "null":
            return value == sa.cast(constant("null"), JSONB())
        if predicate.kind == "either":
            has_substring = _has_substring(as_text(value), self._parameter(_TEXT))
            return sa.or_(has_substring, _has_element(value, self._parameter(JSONB())))
        if predicate.test == "member":
            return _has_element(value, self._parameter(JSONB()))
        viewed = KINDS[predicate.kind][1](value) if predicate.kind else value
        arguments = [self._parameter(type_) for type_ in _types(predicate, viewed.type)]
        return _TESTS[predicate.test](viewed, *arguments)

    def _indexed_path_test(self, predicate: Predicate, value: Expression) -> Expression:
        """Test an indexed value within a document or a map."""
        like, view = KINDS[predicate.kind]
        viewed = view(value)
        arguments = [self._parameter(type_) for type_ in _types(predicate, viewed.type)]
        test = _TESTS[predicate.test](viewed, *arguments)
        if predicate.prefixed:
            key = sort_key(like, viewed)
            return sa.and_(key >= arguments[1], key < arguments[2], test)
        return sa.and_(*_coarse(predicate, like, viewed, arguments, INDEXED_CHARACTERS), test)


def _coarse(
    predicate: Predicate,
    field: Field,
    column: Expression,
    arguments: list[Any],
    max_characters: int,
) -> list[Expression]:
    """Return the implied test of a truncated value, if the index truncates values."""
    key = sort_key(field, column, max_characters)
    if key is column:
        return []
    if predicate.test != "among":
        test = _TESTS[_TRUNCATED_TESTS.get(predicate.test, predicate.test)]
        return [test(key, *(sort_key(field, value, max_characters) for value in arguments))]
    value = sa.func.unnest(arguments[0], type_=column.type).column_valued("given")
    keys = sa.select(sort_key(field, value, max_characters)).scalar_subquery()
    return [key == sa.any_(sa.func.array(keys, type_=ARRAY(_bare(column.type))))]


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
    """Return a type without its collation: no array can be cast to a collated type."""
    return sa.Text() if isinstance(type_, sa.Text) else type_


def _has_element(value: Expression, element: Expression) -> Expression:
    contained = value.op("@>", return_type=sa.Boolean())(element)
    return sa.and_(sa.func.jsonb_typeof(value) == constant("array"), contained)


def _has_substring(text: Expression, part: Expression) -> Expression:
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
    "among": lambda value, values: value == sa.any_(values),
    "like": _like,
    "part": _has_substring,
    "member": lambda items, item: item == sa.any_(items),
}
