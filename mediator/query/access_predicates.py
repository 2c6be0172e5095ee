"""Access predicates: necessary conditions on values, by which the index finds a filter.

A filter can hold only if one of its access predicates does; each tests one path. A filter without
any is tried for every object.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from mediator.model.evaluate import COMPARABLE, key_of, kind_of
from mediator.model.filters import (
    And,
    Between,
    Compare,
    Comparison,
    Contains,
    Filter,
    In,
    Like,
    Or,
    Path,
)
from mediator.model.patterns import tokens

__all__ = ["AccessPredicate", "Element", "Equal", "Prefix", "Within", "access_predicates_of"]

Key: TypeAlias = tuple[int, Hashable]
"""Equal for equal values, such as numbers of all types; true is not 1."""


@dataclass(frozen=True, slots=True)
class Equal:
    path: Path
    key: Key


@dataclass(frozen=True, slots=True)
class Element:
    """The value has this element; or it is a text."""

    path: Path
    key: Key


@dataclass(frozen=True, slots=True)
class Prefix:
    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Within:
    """The value is of a kind and within two bounds; None: no bound."""

    path: Path
    kind: int
    low: Any
    high: Any


AccessPredicate: TypeAlias = Equal | Element | Prefix | Within

_COSTS = {Equal: 0, Element: 1, Prefix: 2, Within: 3}
"""Ranks of how many objects meet a predicate, by experience: fewest first."""


def access_predicates_of(filter_: Filter | None) -> tuple[AccessPredicate, ...] | None:
    """Return the most selective access predicates of a filter, without duplicates.

    None: it has no predicates. Empty: it never holds.
    """
    match filter_:
        case And(operands):
            candidates = [
                predicates
                for operand in operands
                if (predicates := access_predicates_of(operand)) is not None
            ]
            # All operands must hold, so the predicates of any one of them are enough.
            return min(candidates, key=_cost, default=None)
        case Or(operands):
            return _any_of(map(access_predicates_of, operands))
        case Compare():
            return _compare(filter_)
        case Between(path, low, high):
            kind = kind_of(low)
            return _within(path, kind, low, high) if kind == kind_of(high) else ()
        case In(path, values):
            return _equal(path, values)
        case Contains(path, value):
            key = key_of(value)
            return None if key is None else (Element(path, key),)
        case Like(path, pattern):
            return _like(path, pattern)
    return None


def _cost(predicates: tuple[AccessPredicate, ...]) -> tuple[int, int]:
    return max((_COSTS[type(predicate)] for predicate in predicates), default=-1), len(predicates)


def _any_of(
    candidates: Iterable[tuple[AccessPredicate, ...] | None],
) -> tuple[AccessPredicate, ...] | None:
    predicates_of_all: list[AccessPredicate] = []
    # One operand without predicates may hold for any object.
    for predicates in candidates:
        if predicates is None:
            return None
        predicates_of_all += predicates
    # Several operands may have the same predicate; the index has one entry for each.
    return tuple(dict.fromkeys(predicates_of_all))


def _compare(compare: Compare) -> tuple[AccessPredicate, ...] | None:
    path, value = compare.path, compare.value
    kind = kind_of(value)
    match compare.comparison:
        case Comparison.EQ:
            return _equal(path, (value,))
        case Comparison.LT | Comparison.LE:
            return _within(path, kind, None, value)
        case Comparison.GT | Comparison.GE:
            return _within(path, kind, value, None)
    return None


def _within(path: Path, kind: int, low: Any, high: Any) -> tuple[AccessPredicate, ...]:
    # Values of other kinds have no order, so nothing is between them.
    return (Within(path, kind, low, high),) if 0 < kind <= COMPARABLE else ()


def _equal(path: Path, values: Iterable[Any]) -> tuple[AccessPredicate, ...] | None:
    keys = [key_of(value) for value in values]
    hashable = [key for key in keys if key is not None]
    return None if len(hashable) < len(keys) else tuple(Equal(path, key) for key in set(hashable))


def _like(path: Path, pattern: str) -> tuple[AccessPredicate, ...] | None:
    literals = tokens(pattern)
    if not literals or not isinstance(literals[0], str):
        return None if literals else _equal(path, ("",))
    return _equal(path, literals) if len(literals) == 1 else (Prefix(path, literals[0]),)
