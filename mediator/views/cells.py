"""Cells: values in the tuples of nodes, hashable, and equal if the values are.

A scalar is its own cell if its field has a type, as only values of this type occur there. Lists,
maps and values within documents are boxed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import orjson

from mediator.model.evaluate import key_of
from mediator.query.paths import ResolvedPath
from mediator.schema.tree import MISSING

__all__ = ["Boxed", "Cell", "Tuple", "box", "cell_of", "unbox"]

Cell: TypeAlias = Any
Tuple: TypeAlias = tuple[Cell, ...]


class Boxed:
    """A value without a hash or a fixed type; equal to boxed values with the same key."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any, key: Any) -> None:
        self.value = value
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Boxed) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


_TEXT: Final = orjson.OPT_SORT_KEYS


def box(value: Any) -> Boxed:
    return Boxed(value, key_of(value) or orjson.dumps(value, default=str, option=_TEXT))


def unbox(cell: Cell) -> Any:
    return cell.value if isinstance(cell, Boxed) else cell


def cell_of(target: ResolvedPath) -> Callable[[Any], Cell]:
    """Return a function that makes cells of a path's values."""
    if target.type is not None and target.is_scalar:
        return _identity
    return _box_if_present


def _identity(value: Any) -> Cell:
    return value


def _box_if_present(value: Any) -> Cell:
    return value if value is None or value is MISSING else box(value)
