"""Splits filters into shapes, each with an exact SQL condition, and constants.

A shape has no constants: they are sent as parameters, so that a statement serves every filter of
its shape. Filters without an exact condition have no shape, and the mediator evaluates them:
comparisons of whole documents and collections, of times, bytes and decimals inside maps, constants
that PostgreSQL cannot represent.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from mediator.model.filters import (
    And,
    Between,
    Compare,
    Comparison,
    Contains,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Or,
)
from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.scalars import text_error
from mediator.schema.tree import Field
from mediator.schema.types import ARRAYS, SCALARS, TEXTS, FieldType, Value
from mediator.stores.outboxes import PYTHON_TYPES
from mediator.stores.port import Fragment
from mediator.stores.port.search import field_at
from mediator.stores.postgres.layout import INDEXED_CHARACTERS
from mediator.stores.postgres.search.patterns import like_pattern, prefix_range

__all__ = [
    "EVERY",
    "FilterShape",
    "Joined",
    "Negated",
    "Predicate",
    "ShapedFilter",
    "shaped_filter",
]

_JSON_KINDS: Final = frozenset({str, int, float, bool})
_IN_MAPS: Final = TEXTS | {FieldType.INTEGER, FieldType.FLOAT, FieldType.BOOLEAN}
"""Types of map items that have the same form in jsonb as in Python; others are texts there."""


class Predicate(NamedTuple):
    """A test of one field, or of a value within it.

    Attributes:
        test: Its name: eq lt le gt ge between among null exists like part member.
        field: The field; ``id`` for the object's id.
        keys: Number of keys of the path into the field's jsonb.
        kind: ``text`` or ``number`` where jsonb is compared as one, else empty.
        prefixed: Whether a pattern comes with the range of its prefix.
        path: The keys, if their value has a usable index; else the keys are constants.
    """

    test: str
    field: str
    keys: int = 0
    kind: str = ""
    prefixed: bool = False
    path: tuple[str, ...] = ()


class Joined(NamedTuple):
    """A conjunction (`every`) or a disjunction."""

    every: bool
    parts: tuple[FilterShape, ...]


class Negated(NamedTuple):
    """The negation: true wherever the condition is not true."""

    part: FilterShape


FilterShape: TypeAlias = "Predicate | Joined | Negated"

EVERY: Final = Joined(True, ())
"""The shape of no filter."""


class ShapedFilter(NamedTuple):
    """The shape of a filter, and its constants in the shape's order."""

    shape: FilterShape
    constants: tuple[Any, ...] = ()


class _Inexact(Exception):
    """No condition is true exactly where the filter holds."""


def shaped_filter(fragment: Fragment, filter_: Filter | None) -> ShapedFilter | None:
    """Return the shape and the constants of a filter; None if it has no exact condition."""
    try:
        return _shape(fragment, And(()) if filter_ is None else filter_)
    except (_Inexact, ValueError):  # ValueError: an invalid pattern
        return None


def _shape(fragment: Fragment, filter_: Filter) -> ShapedFilter:
    match filter_:
        case And(parts):
            return _junction(True, (_shape(fragment, part) for part in parts))
        case Or(parts):
            return _junction(False, (_shape(fragment, part) for part in parts))
        case Not(part):
            return _negation(_shape(fragment, part))
        case Compare(Comparison.NE, path, value):
            return _negation(_shape(fragment, Compare(Comparison.EQ, path, value)))
        case In(path, values) if None in values:
            non_null = In(path, tuple(value for value in values if value is not None))
            null = Compare(Comparison.EQ, path, None)
            return _junction(False, (_shape(fragment, part) for part in (non_null, null)))
        case leaf:
            return _leaf(fragment, leaf)


def _junction(every: bool, parts: Iterable[ShapedFilter]) -> ShapedFilter:
    shaped_parts = tuple(parts)
    constants = tuple(constant for part in shaped_parts for constant in part.constants)
    return ShapedFilter(Joined(every, tuple(part.shape for part in shaped_parts)), constants)


def _negation(part: ShapedFilter) -> ShapedFilter:
    return ShapedFilter(Negated(part.shape), part.constants)


def _leaf(
    fragment: Fragment, leaf: Compare | Between | In | Like | Contains | Exists
) -> ShapedFilter:
    field = field_at(fragment, leaf.path)
    if field is None:
        return _path_test(fragment, leaf)
    match leaf:
        case Exists():
            return ShapedFilter(Predicate("exists", field.name))
        case Compare(Comparison.EQ, _, None):
            return ShapedFilter(Predicate("null", field.name))
        case Contains(_, value):
            return _containment(field, value)
    if field.type not in SCALARS:
        raise _Inexact
    return _scalar(field, leaf)


def _scalar(field: Field, leaf: Compare | Between | In | Like) -> ShapedFilter:
    type_, name = field.type, field.name
    match leaf:
        case Compare(comparison, _, value):
            return ShapedFilter(Predicate(comparison.value, name), (_constant(type_, value),))
        case Between(_, low, high):
            return ShapedFilter(
                Predicate("between", name), (_constant(type_, low), _constant(type_, high))
            )
        case In(_, values):
            return ShapedFilter(
                Predicate("among", name), ([_constant(type_, value) for value in values],)
            )
        case Like(_, pattern) if type_ in TEXTS:
            return _like(field, _constant(type_, pattern))
    raise _Inexact


def _like(field: Field, pattern: str) -> ShapedFilter:
    bounds = prefix_range(pattern, INDEXED_CHARACTERS) if field.index else None
    predicate = Predicate("like", field.name, prefixed=bounds is not None)
    return ShapedFilter(predicate, (like_pattern(pattern), *(bounds or ())))


def _containment(field: Field, value: Value) -> ShapedFilter:
    if field.type in TEXTS:
        return ShapedFilter(Predicate("part", field.name), (_constant(field.type, value),))
    if field.type in ARRAYS and field.items in SCALARS:
        return ShapedFilter(Predicate("member", field.name), (_constant(field.items, value),))
    raise _Inexact


def _constant(type_: FieldType, value: Value) -> Any:
    """Return a constant of a type, if PostgreSQL can represent it."""
    if type(value) is not PYTHON_TYPES[type_]:
        raise _Inexact
    if isinstance(value, str) and text_error(value) is not None:
        raise _Inexact
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise _Inexact
    if isinstance(value, float) and not isfinite(value):
        raise _Inexact
    if isinstance(value, Decimal) and not value.is_finite():
        raise _Inexact
    if isinstance(value, datetime) and value.tzinfo is None:
        raise _Inexact
    return value


def _path_test(
    fragment: Fragment, leaf: Compare | Between | In | Like | Contains | Exists
) -> ShapedFilter:
    """Return the test of a value within a document or a map."""
    name, *keys = leaf.path
    field = fragment.fields.get(name)
    if field is None or field.type not in (FieldType.DOCUMENT, FieldType.MAP):
        raise _Inexact
    item_type = field.items if field.type is FieldType.MAP and len(keys) == 1 else None
    if any(text_error(key) is not None for key in keys):
        raise _Inexact
    if tuple(keys) in field.indexed_keys and (indexed := _indexed_test(item_type, leaf)):
        test, kind, constants = indexed
        predicate = Predicate(test, name, len(keys), kind, test == "like", tuple(keys))
        return ShapedFilter(predicate, constants)
    test, kind, constants = _json_test(item_type, leaf)
    return ShapedFilter(Predicate(test, name, len(keys), kind), (*keys, *constants))


def _indexed_test(
    item_type: FieldType | None, leaf: Compare | Between | In | Like | Contains | Exists
) -> tuple[str, str, tuple[Any, ...]] | None:
    """Return a test of a text or a number that an index of that kind serves, or None."""
    match leaf:
        case Compare(comparison, _, value):
            kind, constants = _of_one_kind(item_type, value)
            return (comparison.value, kind, tuple(constants)) if kind else None
        case Between(_, low, high):
            kind, constants = _of_one_kind(item_type, low, high)
            return ("between", kind, tuple(constants)) if kind else None
        case In(_, values) if values:
            kind, constants = _of_one_kind(item_type, *values)
            return ("among", kind, (constants,)) if kind else None
        case Like(_, pattern) if bounds := prefix_range(pattern, INDEXED_CHARACTERS):
            return "like", "text", (like_pattern(_string(item_type, pattern)), *bounds)
    return None


def _json_test(
    item_type: FieldType | None, leaf: Compare | Between | In | Like | Contains | Exists
) -> tuple[str, str, tuple[Any, ...]]:
    match leaf:
        case Exists():
            return "exists", "", ()
        case Compare(Comparison.EQ, _, None):
            return "null", "", ()
        case Compare(Comparison.EQ, _, value):
            return "eq", "", (_text(_json(item_type, value)),)
        case In(_, values):
            return "among", "", ([_text(_json(item_type, value)) for value in values],)
        case Compare(comparison, _, value):
            return _comparison(comparison.value, item_type, value)
        case Between(_, low, high):
            return _comparison("between", item_type, low, high)
        case Like(_, pattern):
            return "like", "text", (like_pattern(_string(item_type, pattern)),)
        case Contains(_, value) if item_type is not None:
            return "part", "text", (_string(item_type, value),)
        case Contains(_, value):
            return _json_containment(value)


def _json(item_type: FieldType | None, value: Value) -> Any:
    """Return the jsonb form of a constant; `item_type` is the type of a map's items.

    Numbers of documents have a canonical form (`mediator.schema.documents`), which makes comparing
    their decimal digits exact; so the constant must have the same form.
    """
    if item_type is not None:
        if item_type not in _IN_MAPS:
            raise _Inexact
        return _constant(item_type, value)
    kind = type(value)
    if kind not in _JSON_KINDS:
        raise _Inexact
    value = _constant(next(t for t, k in PYTHON_TYPES.items() if k is kind), value)
    if isinstance(value, float) and value.is_integer() and INTEGER_MIN <= value <= INTEGER_MAX:
        return int(value)
    return value


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _string(item_type: FieldType | None, value: Value) -> str:
    text = _json(item_type, value)
    if not isinstance(text, str):
        raise _Inexact
    return text


def _comparison(
    test: str, item_type: FieldType | None, *values: Value
) -> tuple[str, str, tuple[Any, ...]]:
    kind, constants = _of_one_kind(item_type, *values)
    if not kind:
        raise _Inexact
    return test, kind, tuple(constants)


def _of_one_kind(item_type: FieldType | None, *values: Value) -> tuple[str, list[Any]]:
    """Return constants with their common kind, `text` or `number`, or an empty kind."""
    if None in values:
        return "", []
    constants = [_json(item_type, value) for value in values]
    kinds = {"text" if isinstance(c, str) else "number" for c in constants}
    if len(kinds) > 1 or bool in map(type, constants):
        return "", []
    if kinds == {"number"}:
        constants = [Decimal(_text(constant)) for constant in constants]
    return kinds.pop(), constants


def _json_containment(value: Value) -> tuple[str, str, tuple[Any, ...]]:
    """Test an array for an element, or, if that is a string, also a string for a substring."""
    constant = _json(None, value)
    if isinstance(constant, str):
        return "part", "either", (constant, _text(constant))
    return "member", "", (_text(constant),)
