"""The index over the filters of registered queries: which of them a write may concern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

from mediator.model.effects import Effect, Image
from mediator.model.evaluate import COMPARABLE, key_of, kind_of
from mediator.model.filters import Path
from mediator.query.invalidation.access_predicates import (
    AccessPredicate,
    Element,
    Equal,
    Prefix,
    Within,
    access_predicates_of,
)
from mediator.query.invalidation.registered_query import MatchBudget, RegisteredQuery
from mediator.schema.tree import MISSING

__all__ = ["Intervals", "QueryIndex"]


class QueryIndex:
    """Registered queries, and which of them a write may have changed.

    A write is matched in two steps: the values of the object, before and after, lead to the queries
    whose predicates they meet, and their whole filters are evaluated.
    """

    def __init__(self) -> None:
        self._queries: dict[str, RegisteredQuery] = {}
        self._paths: dict[Path, _PredicateTable] = {}
        self._predicates_of: dict[str, tuple[AccessPredicate, ...]] = {}
        self._uncovered: set[str] = set()
        self._opaque: set[str] = set()
        self._counts: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._queries) + len(self._opaque)

    def __contains__(self, name: str) -> bool:
        return name in self._queries or name in self._opaque

    def __iter__(self) -> Iterator[str]:
        yield from self._queries
        yield from self._opaque

    def put(self, name: str, query: RegisteredQuery | None) -> None:
        """Register a query; None: one that is not understood, which every write may change."""
        self.discard(name)
        if query is None:
            self._opaque.add(name)
            return
        self._queries[name] = query
        self._counts.update(_counted(query))
        predicates = access_predicates_of(query.query.filter)
        if predicates is None:
            self._uncovered.add(name)
            return
        self._predicates_of[name] = predicates
        for predicate in predicates:
            self._paths.setdefault(predicate.path, _PredicateTable()).add(
                name, predicate, self._queries
            )

    def discard(self, name: str) -> None:
        self._opaque.discard(name)
        self._uncovered.discard(name)
        query = self._queries.pop(name, None)
        if query is not None:
            self._counts.subtract(_counted(query))
        for predicate in self._predicates_of.pop(name, ()):
            self._paths[predicate.path].discard(name, predicate)

    def depends_on(self, touched: Iterable[str] | None) -> bool:
        """Whether there are queries that a change of these fields may concern; None: of all."""
        if self._opaque or touched is None:
            return len(self) > 0
        return self._counts[None] > 0 or any(self._counts[name] > 0 for name in touched)

    def changed(
        self, effects: Iterable[Effect], budget: MatchBudget | None = None
    ) -> AbstractSet[str]:
        """Return the names of the queries whose results a write may have changed.

        `budget` is what matching may cost; None: `MAX_MATCH_COST`. Beyond that all queries are
        returned.
        """
        budget, matched = budget or MatchBudget(), set[str]()
        for effect in effects:
            if self.depends_on(effect.touched) and not self._match(effect, matched, budget):
                return self._queries.keys() | self._opaque
        return matched

    def _match(self, effect: Effect, matched: set[str], budget: MatchBudget) -> bool:
        """Add the queries whose results an effect may have changed; False if that is too much."""
        matched |= self._opaque
        seen: set[str] = set()
        for name in self._candidates(effect):
            query = self._queries.get(name)
            if query is None or name in seen or name in matched:
                continue
            if not budget.spend(query.cost(effect)):
                return False
            seen.add(name)
            if query.changes(effect):
                matched.add(name)
        return True

    def _candidates(self, effect: Effect) -> Iterator[str]:
        yield from self._uncovered
        yield from self._met(effect.before)
        yield from self._met(effect.after)

    def _met(self, image: Image | None) -> Iterator[str]:
        """Find the queries one of whose predicates an object meets, or may meet."""
        if image is None:
            return
        for path, predicates in self._paths.items():
            if image.knows(path):
                yield from predicates.met(image.lookup(path))
            else:
                yield from predicates.names


def _counted(query: RegisteredQuery) -> Iterable[str | None]:
    return (None,) if query.fields is None else query.fields


class _PredicateTable:
    """The access predicates on one path, by what they ask of a value."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self._equal: dict[Any, set[str]] = {}
        self._elements: dict[Any, set[str]] = {}
        self._prefixes: dict[int, dict[str, set[str]]] = {}
        self._ranges: dict[int, Intervals] = {}

    def add(self, name: str, predicate: AccessPredicate, wanted: Container[str]) -> None:
        self.names[name] += 1
        match predicate:
            case Within(_, kind, low, high):
                self._ranges.setdefault(kind, Intervals()).add(name, low, high, wanted)
            case _:
                table, key = self._table(predicate)
                table.setdefault(key, set()).add(name)

    def discard(self, name: str, predicate: AccessPredicate) -> None:
        """Forget a predicate; `Intervals` forget theirs when they are rebuilt."""
        self.names[name] -= 1
        if not self.names[name]:
            del self.names[name]
        if not isinstance(predicate, Within):
            table, key = self._table(predicate)
            table[key].discard(name)
            if not table[key]:
                del table[key]

    def met(self, value: Any) -> Iterator[str]:
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

    def _table(self, predicate: Equal | Element | Prefix) -> tuple[dict[Any, set[str]], Any]:
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
    """Closed intervals over values of one kind, each of a name.

    Most are in a balanced tree, laid out over an array that is sorted by the lower bounds, where
    each node knows the highest upper bound below it. New ones wait in a list, until there are
    enough of them to build the tree anew: amortised, adding takes logarithmic time. Names that are
    no longer wanted are forgotten then, too.
    """

    def __init__(self) -> None:
        self._new: list[tuple[Bound, Bound, str]] = []
        self._sorted: list[tuple[Bound, Bound, str]] = []
        self._tops: list[Bound] = []

    def add(self, name: str, low: Any, high: Any, wanted: Container[str]) -> None:
        """Add an interval; None is no bound."""
        bounds = _LOWEST if low is None else (1, low), _HIGHEST if high is None else (1, high)
        self._new.append((*bounds, name))
        if len(self._new) > _NEW + len(self._sorted) // _NEW_SHARE:
            entries = {entry for entry in (*self._sorted, *self._new) if entry[2] in wanted}
            self._sorted, self._new = sorted(entries), []
            self._tops = [_LOWEST] * len(self._sorted)
            self._build(0, len(self._sorted))

    def around(self, value: Any) -> Iterator[str]:
        """Return the names of the intervals that a value is in, some perhaps more than once."""
        at = (1, value)
        for low, high, name in self._new:
            if low <= at <= high:
                yield name
        yield from self._below(at, 0, len(self._sorted))

    def _build(self, first: int, end: int) -> Bound:
        if first >= end:
            return _LOWEST
        middle = (first + end) // 2
        below = self._build(first, middle), self._build(middle + 1, end)
        top = self._tops[middle] = max(self._sorted[middle][1], *below)
        return top

    def _below(self, at: Bound, first: int, end: int) -> Iterator[str]:
        """Search the subtree of a slice; its node is the middle one."""
        if first >= end:
            return
        middle = (first + end) // 2
        if self._tops[middle] < at:
            return
        yield from self._below(at, first, middle)
        low, high, name = self._sorted[middle]
        if low <= at:
            if at <= high:
                yield name
            yield from self._below(at, middle + 1, end)
