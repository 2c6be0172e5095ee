"""Orders of objects: sorting, keyset positions, and the first few of many.

At each level missing comes before null, and null before values; `descending` reverses the whole
level. Objects that are equal at all levels are ordered by id, in the direction of the last level.
Within documents, `evaluate.kind_of` ranks the kinds of values; lists and maps tie.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import total_ordering
from typing import Any, Generic, TypeAlias, TypeVar

from mediator.model.evaluate import COMPARABLE, Lookup, kind_of
from mediator.model.query import OrderBy, Position
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value

__all__ = ["Key", "Top", "beyond", "descending", "position_of", "rank", "sort_key"]

_T = TypeVar("_T")

Key: TypeAlias = tuple[Any, ...]
"""Compares as its object does; only with keys of the same order."""


@total_ordering
class _Reversed:
    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.key == other.key)

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.key < self.key)

    def __hash__(self) -> int:
        return hash(self.key)


def descending(key: Any) -> Any:
    """Return a key that compares in reverse."""
    return _Reversed(key)


def rank(value: Value | MissingType) -> tuple[Any, ...]:
    """Return the rank of a value within one ascending level, as a tuple that compares."""
    if value is MISSING:
        return (-2,)
    if value is None:
        return (-1,)
    kind = kind_of(value)
    return (kind, value) if kind <= COMPARABLE else (kind,)


def _directions(order: Sequence[OrderBy]) -> list[bool]:
    last = order[-1].descending if order else False
    return [*(level.descending for level in order), last]


def _key(values: Sequence[Value | MissingType], id_: str, directions: Sequence[bool]) -> Key:
    ranks = [*map(rank, values), (id_,)]
    return tuple(
        descending(key) if down else key for key, down in zip(ranks, directions, strict=True)
    )


def sort_key(order: Sequence[OrderBy]) -> Callable[[Lookup, str], Key]:
    paths, directions = [level.path for level in order], _directions(order)
    return lambda lookup, id_: _key([lookup(path) for path in paths], id_, directions)


def position_of(order: Sequence[OrderBy], lookup: Lookup, id_: str) -> Position:
    return Position(tuple([lookup(level.path) for level in order]), id_)


def beyond(order: Sequence[OrderBy], position: Position) -> Callable[[Lookup, str], bool]:
    """Return the test of whether an object comes after a position."""
    key, position_key = sort_key(order), _key(position.values, position.id, _directions(order))
    return lambda lookup, id_: key(lookup, id_) > position_key


class Top(Generic[_T]):
    """Keeps the items with the lowest keys of a stream, buffering twice as many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: list[tuple[Key, int, _T]] = []
        self._count = 0

    def add(self, key: Key, item: _T) -> None:
        self._count += 1
        # The count decides between equal keys, so that items are never compared.
        self._items.append((key, self._count, item))
        if len(self._items) >= 2 * self._limit + 64:
            self._items = heapq.nsmallest(self._limit, self._items)

    def items(self) -> list[_T]:
        """Return the items with the lowest keys, in order."""
        return [item for _, _, item in heapq.nsmallest(self._limit, self._items)]
