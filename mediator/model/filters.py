"""Filters: conditions on one object, parsed and typed; plain immutable data.

Logic is two-valued. A comparison with `lt`, `le`, `gt`, `ge`, `between`, `like` or `contains` holds
for values only: never for a null, a missing field, or, within a document, a value of another kind.
`eq` and `in` also match null if it is listed; `ne` and `not` hold whenever `eq` or the negated
filter does not. `exists` holds for every field that is not missing, null included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from mediator.schema.types import Value

__all__ = [
    "ID",
    "And",
    "Between",
    "Compare",
    "Comparison",
    "Contains",
    "Exists",
    "Filter",
    "In",
    "Like",
    "Not",
    "Or",
    "Path",
    "all_of",
    "conjuncts",
    "paths_of",
    "with_paths",
]

Path: TypeAlias = tuple[str, ...]
"""A field, followed by keys within it if it is a document or a map: `a.b` is ``("a", "b")``.

In a query with joins, the alias of a join comes first: `writer.name` is ``("writer", "name")``.
"""

ID: Path = ("id",)
"""The path of the object's id, a string; no field has this name."""


class Comparison(StrEnum):
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


@dataclass(frozen=True, slots=True)
class Compare:
    """A value against a constant of the field's type; None (null) with EQ and NE only."""

    comparison: Comparison
    path: Path
    value: Value


@dataclass(frozen=True, slots=True)
class Between:
    """``low <= value <= high``."""

    path: Path
    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class In:
    """A value equal to one of some constants; they may include None."""

    path: Path
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    r"""A string that matches a pattern, case-sensitively and entirely.

    ``%`` stands for any characters, ``_`` for one character (a code point); ``\`` takes its meaning
    from the character that follows.
    """

    path: Path
    pattern: str


@dataclass(frozen=True, slots=True)
class Contains:
    """A list or set that has an element, or a string that has a substring."""

    path: Path
    value: Value


@dataclass(frozen=True, slots=True)
class Exists:
    """A field, or a key within a document, that is not missing."""

    path: Path


@dataclass(frozen=True, slots=True)
class And:
    """All of some filters; true if there are none."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of some filters; false if there are none."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a filter."""

    operand: Filter


Filter: TypeAlias = Compare | Between | In | Like | Contains | Exists | And | Or | Not


def conjuncts(filter_: Filter | None) -> tuple[Filter, ...]:
    """Return the filters that must all hold, nested conjunctions flattened; none for None."""
    if filter_ is None:
        return ()
    if not isinstance(filter_, And):
        return (filter_,)
    return tuple(conjunct for operand in filter_.operands for conjunct in conjuncts(operand))


def all_of(filters: Iterable[Filter]) -> Filter | None:
    """Return the filter that holds where all parts do; None if there are none."""
    operands = tuple(filters)
    if len(operands) > 1:
        return And(operands)
    return operands[0] if operands else None


def with_paths(filter_: Filter, rename: Callable[[Path], Path]) -> Filter:
    """Return the same filter on other paths."""
    match filter_:
        case And(operands):
            return And(tuple([with_paths(operand, rename) for operand in operands]))
        case Or(operands):
            return Or(tuple([with_paths(operand, rename) for operand in operands]))
        case Not(operand):
            return Not(with_paths(operand, rename))
        case _:
            return replace(filter_, path=rename(filter_.path))


def paths_of(filter_: Filter | None) -> frozenset[Path]:
    match filter_:
        case None:
            return frozenset()
        case And(operands) | Or(operands):
            return frozenset().union(*map(paths_of, operands))
        case Not(operand):
            return paths_of(operand)
        case _:
            return frozenset({filter_.path})
