"""Evaluating filters on one object: the semantics on which all stores agree."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from mediator.model.filters import (
    ID,
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
    Path,
)
from mediator.model.patterns import matcher
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value

__all__ = [
    "COMPARABLE",
    "Lookup",
    "compile_filter",
    "holds",
    "key_of",
    "kind_of",
    "lookup_of",
    "same_value",
    "value_at",
]

Lookup: TypeAlias = Callable[[Path], Value | MissingType]
"""Returns the value of an object at a path."""

_Test: TypeAlias = Callable[[Lookup], bool]

_LESS: Final[Mapping[Comparison, Callable[[Any, Any], bool]]] = {
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.GT: operator.gt,
    Comparison.GE: operator.ge,
}

_KINDS: Final[tuple[tuple[type | tuple[type, ...], int], ...]] = (
    (bool, 1),
    ((int, float, Decimal), 2),
    (str, 3),
    (datetime, 4),
    (bytes, 5),
    (list, 6),
    (dict, 7),
)

COMPARABLE: Final = 5
"""The last kind whose values have an order."""


def value_at(values: Mapping[str, Any], path: Path) -> Value | MissingType:
    """Return the value at a path: a field, then keys within it; MISSING if a step is absent."""
    value: Any = values
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return MISSING
        value = value[key]
    return value  # type: ignore[no-any-return]  # a value within a document is one


def lookup_of(id_: str, values: Mapping[str, Any]) -> Lookup:
    def lookup(path: Path) -> Value | MissingType:
        if path == ID:
            return id_
        return values.get(path[0], MISSING) if len(path) == 1 else value_at(values, path)

    return lookup


def kind_of(value: object) -> int:
    """Return the kind of a value: only values of one kind are equal, or less than each other.

    Kinds are ordered: booleans, numbers, strings, timestamps, bytes, lists, maps.
    """
    for types, kind in _KINDS:
        if isinstance(value, types):
            return kind
    return 0


def same_value(left: Any, right: Any) -> bool:
    """Whether two values are equal: true is not 1, 1 is 1.0, at any depth."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[k], right[k]) for k in left)
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def key_of(value: Value) -> tuple[int, Any] | None:
    """Return a hashable key, equal for equal values only; None for lists and maps."""
    kind = kind_of(value)
    return (kind, value) if kind <= COMPARABLE else None


def holds(filter_: Filter, lookup: Lookup) -> bool:
    return compile_filter(filter_)(lookup)


def compile_filter(filter_: Filter) -> Callable[[Lookup], bool]:
    match filter_:
        case And(operands):
            return _all_of([compile_filter(operand) for operand in operands])
        case Or(operands):
            return _any_of([compile_filter(operand) for operand in operands])
        case Not(operand):
            test = compile_filter(operand)
            return lambda lookup: not test(lookup)
        case Exists(path):
            return lambda lookup: lookup(path) is not MISSING
        case Like(path, pattern):
            return _like(path, pattern)
        case Contains(path, value):
            return lambda lookup: _contains(lookup(path), value)
        case In(path, values):
            return _among(path, values)
        case Between(path, low, high):
            return _between(path, low, high)
        case Compare(comparison, path, value):
            return _comparison(comparison, path, value)


def _all_of(tests: Sequence[_Test]) -> _Test:
    if len(tests) == 1:
        return tests[0]
    return lambda lookup: all(test(lookup) for test in tests)


def _any_of(tests: Sequence[_Test]) -> _Test:
    return lambda lookup: any(test(lookup) for test in tests)


def _like(path: Path, pattern: str) -> _Test:
    def like(lookup: Lookup) -> bool:
        value = lookup(path)
        # Cached by pattern: thousands of filters are kept, but not as many compiled patterns.
        return isinstance(value, str) and matcher(pattern)(value)

    return like


def _contains(value: Any, element: Value) -> bool:
    if isinstance(value, str):
        return isinstance(element, str) and element in value
    return isinstance(value, list) and any(same_value(item, element) for item in value)


def _among(path: Path, values: Sequence[Value]) -> _Test:
    keys = frozenset(key for value in values if (key := key_of(value)) is not None)
    unhashable = [value for value in values if key_of(value) is None]

    def among(lookup: Lookup) -> bool:
        value = lookup(path)
        if isinstance(value, MissingType):
            return False
        key = key_of(value)
        return key in keys if key is not None else any(same_value(value, v) for v in unhashable)

    return among


def _comparable(value: Value | MissingType, kind: int) -> bool:
    return 0 < kind <= COMPARABLE and kind_of(value) == kind


def _between(path: Path, low: Value, high: Value) -> _Test:
    kind = kind_of(low)
    if kind != kind_of(high):
        return lambda _: False

    def between(lookup: Lookup) -> bool:
        value: Any = lookup(path)
        return _comparable(value, kind) and low <= value <= high

    return between


def _comparison(comparison: Comparison, path: Path, constant: Value) -> _Test:
    if comparison is Comparison.EQ:
        return lambda lookup: _equals(lookup(path), constant)
    if comparison is Comparison.NE:
        return lambda lookup: not _equals(lookup(path), constant)
    compare, kind = _LESS[comparison], kind_of(constant)

    def compares(lookup: Lookup) -> bool:
        value = lookup(path)
        return _comparable(value, kind) and compare(value, constant)

    return compares


def _equals(value: Value | MissingType, constant: Value) -> bool:
    return value is not MISSING and same_value(value, constant)
