"""An index over filters: finds those that an object with given values may meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar

from mediator.model.effects import Image
from mediator.model.evaluate import COMPARABLE, key_of, kind_of
from mediator.model.filters import Filter, Path
from mediator.query.access_predicates import (
    AccessPredicate,
    Element,
    Equal,
    Prefix,
    Within,
    access_predicates_of,
)
from mediator.schema.tree import MISSING

__all__ = ["Intervals", "PredicateIndex"]

_Name = TypeVar("_Name")
"""Names are hashable, and have an order."""


class PredicateIndex(Generic[_Name]):
    """Filters by name, each found by its most selective condition.

    A filter without such a condition is found for every object.
    """

    def __init__(self) -> None:
        self._paths: dict[Path, _PredicateTable] = {}
        self._predicates_of: dict[_Name, tuple[AccessPredicate, ...]] = {}
        self._uncovered: dict[_Name, None] = {}

    def put(self, name: _Name, filter_: Filter | None) -> None:
        """Add a filter under a new name."""
        predicates = access_predicates_of(filter_)
        if predicates is None:
            self._uncovered[name] = None
            return
        self._predicates_of[name] = predicates
        for predicate in predicates:
            table = self._paths.setdefault(predicate.path, _PredicateTable())
            table.add(name, predicate, self._predicates_of)

    def discard(self, name: _Name) -> None:
        self._uncovered.pop(name, None)
        for predicate in self._predicates_of.pop(name, ()):
            self._paths[predicate.path].discard(name, predicate)

    @property
    def uncovered(self) -> Collection[_Name]:
        """The names of the filters that any object may meet."""
        return self._uncovered.keys()

    def met(self, image: Image | None) -> Iterator[_Name]:
        """Yield the names of covered filters that an object may meet, some more than once.

        Discarded filters may be among them.
        """
        if image is None:
            return
        for path, predicates in self._paths.items():
            if image.knows(path):
                yield from predicates.met(image.lookup(path))
            else:
                yield from predicates.names


class _PredicateTable:
    """The access predicates on one path, by kind."""

    def __init__(self) -> None:
        self.names: Counter[Any] = Counter()
        self._equal: dict[Any, set[Any]] = {}
        self._elements: dict[Any, set[Any]] = {}
        self._prefixes: dict[int, dict[str, set[Any]]] = {}
        self._ranges: dict[int, Intervals] = {}

    def add(self, name: Any, predicate: AccessPredicate, live_names: Container[Any]) -> None:
        self.names[name] += 1
        match predicate:
            case Within(_, kind, low, high):
                self._ranges.setdefault(kind, Intervals()).add(name, low, high, live_names)
            case _:
                table, key = self._table(predicate)
                table.setdefault(key, set()).add(name)

    def discard(self, name: Any, predicate: AccessPredicate) -> None:
        """Remove a predicate; `Intervals` remove theirs when they are rebuilt."""
        self.names[name] -= 1
        if not self.names[name]:
            del self.names[name]
        if not isinstance(predicate, Within):
            table, key = self._table(predicate)
            table[key].discard(name)
            if not table[key]:
                del table[key]

    def met(self, value: Any) -> Iterator[Any]:
        if value is MISSING:
            return
        key = key_of(value)
        if key is not None:
            yield from self._equal.get(key, ())
        if isinstance(value, str):
            for length, prefixes in self._prefixes.items():
                yield from prefixes.get(value[:length], ())
            # `contains` on a text looks for a substring, so any of them may hold.
            for names in self._elements.values():
                yield from names
        elif isinstance(value, list) and self._elements:
            for element in value:
                yield from self._elements.get(key_of(element), ())
        kind = kind_of(value)
        if 0 < kind <= COMPARABLE and kind in self._ranges:
            yield from self._ranges[kind].around(value)

    def _table(self, predicate: Equal | Element | Prefix) -> tuple[dict[Any, set[Any]], Any]:
        match predicate:
            case Equal(_, key):
                return self._equal, key
            case Element(_, key):
                return self._elements, key
            case Prefix(_, text):
                return self._prefixes.setdefault(len(text), {}), text


Bound: TypeAlias = tuple[Any, ...]

# A finite bound is (1, value), so these compare with it as minus and plus infinity.
_LOWEST: Final[Bound] = (0,)
_HIGHEST: Final[Bound] = (2,)
_NEW: Final = 32
_NEW_SHARE: Final = 8


class Intervals:
    """Closed, named intervals over values of one kind.

    Most are in a balanced tree over an array sorted by the lower bounds, where each node knows the
    highest upper bound below it. New ones wait in a list until there are enough to rebuild the
    tree: adding takes amortised logarithmic time. A rebuild also drops names that are not live.
    """

    def __init__(self) -> None:
        self._new: list[tuple[Bound, Bound, Any]] = []
        self._sorted: list[tuple[Bound, Bound, Any]] = []
        self._tops: list[Bound] = []

    def add(self, name: Any, low: Any, high: Any, live_names: Container[Any]) -> None:
        """Add an interval; None: no bound."""
        bounds = _LOWEST if low is None else (1, low), _HIGHEST if high is None else (1, high)
        self._new.append((*bounds, name))
        if len(self._new) > _NEW + len(self._sorted) // _NEW_SHARE:
            entries = {entry for entry in (*self._sorted, *self._new) if entry[2] in live_names}
            self._sorted, self._new = sorted(entries), []
            self._tops = [_LOWEST] * len(self._sorted)
            self._build(0, len(self._sorted))

    def around(self, value: Any) -> Iterator[Any]:
        """Yield the names of the intervals that contain a value, some perhaps more than once."""
        point = (1, value)
        for low, high, name in self._new:
            if low <= point <= high:
                yield name
        yield from self._below(point, 0, len(self._sorted))

    def _build(self, first: int, end: int) -> Bound:
        if first >= end:
            return _LOWEST
        middle = (first + end) // 2
        below = self._build(first, middle), self._build(middle + 1, end)
        top = self._tops[middle] = max(self._sorted[middle][1], *below)
        return top

    def _below(self, point: Bound, first: int, end: int) -> Iterator[Any]:
        """Search the subtree of a slice; its node is the middle one."""
        if first >= end:
            return
        middle = (first + end) // 2
        if self._tops[middle] < point:
            return
        yield from self._below(point, first, middle)
        low, high, name = self._sorted[middle]
        if low <= point:
            if point <= high:
                yield name
            yield from self._below(point, middle + 1, end)
