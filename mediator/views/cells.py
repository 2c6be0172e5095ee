"""Cells: values as nodes keep them in their tuples, hashable, and equal if the values are.

A scalar is its own cell where the field says the type, as no value of another kind can meet it
there. Lists, maps and what is within documents are boxed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import orjson

from mediator.model.evaluate import key_of
from mediator.query.paths import ResolvedPath
from mediator.schema.tree import MISSING

__all__ = ["Boxed", "Cell", "Tuple", "boxed", "cell_of", "unboxed"]

Cell: TypeAlias = Any
Tuple: TypeAlias = tuple[Cell, ...]


class Boxed:
    """A value that has no hash, or is of any kind; it is equal to a boxed one that is alike."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any, key: Any) -> None:
        self.value = value
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Boxed) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


_TEXT: Final = orjson.OPT_SORT_KEYS


def boxed(value: Any) -> Boxed:
    return Boxed(value, key_of(value) or orjson.dumps(value, default=str, option=_TEXT))


def unboxed(cell: Cell) -> Any:
    return cell.value if isinstance(cell, Boxed) else cell


def cell_of(target: ResolvedPath) -> Callable[[Any], Cell]:
    """Return what makes cells of the values of a path."""
    if target.type is not None and target.is_scalar:
        return _same
    return _boxed_if_there


def _same(value: Any) -> Cell:
    return value


def _boxed_if_there(value: Any) -> Cell:
    return value if value is None or value is MISSING else boxed(value)
