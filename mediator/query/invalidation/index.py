"""The index over the filters of registered queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mediator.model.conjuncts import paths_of
from mediator.model.effects import Effect, Image
from mediator.model.evaluate import COMPARABLE, key_of, kind_of
from mediator.model.filters import ID, Path
from mediator.model.query import Query
from mediator.query.invalidation.access_predicates import (
    AccessPredicate,
    Element,
    Equal,
    Prefix,
    Range,
    access_predicates_of,
)
from mediator.query.invalidation.intervals import Intervals
from mediator.query.invalidation.match_budget import Cost, MatchBudget, cost_of
from mediator.query.invalidation.three_valued import (
    ThreeValuedTest,
    Truth,
    compile_three_valued,
)
from mediator.schema.tree import MISSING

__all__ = ["QueryIndex", "RegisteredQuery"]


@dataclass(frozen=True)
class RegisteredQuery:
    """A query without joins and aggregates, as far as it decides which writes change its result."""

    query: Query

    @cached_property
    def test(self) -> ThreeValuedTest:
        """Whether an object is found, at any position of the order."""
        return compile_three_valued(self.query.filter)

    @cached_property
    def _filter_cost(self) -> Cost:
        return cost_of(self.query.filter)

    def cost(self, effect: Effect) -> int:
        """Return the cost of matching a write with this query, in the units of `MatchBudget`."""
        return self._filter_cost.of(effect.before) + self._filter_cost.of(effect.after)

    @cached_property
    def visible(self) -> AbstractSet[str] | None:
        """Fields that decide what the result looks like, given what is in it; None: all."""
        if self.query.fields is None:
            return None
        return {*self.query.fields, *(level.path[0] for level in self.query.order)}

    @cached_property
    def deciding(self) -> AbstractSet[str]:
        """Fields that decide which objects are found."""
        return frozenset(path[0] for path in paths_of(self.query.filter))

    @cached_property
    def fields(self) -> AbstractSet[str] | None:
        """Fields that matter; None: all."""
        return None if self.visible is None else self.visible | self.deciding

    def changes(self, effect: Effect) -> bool:
        """Whether a write may have changed the result.

        Where objects that are found lie beyond the limit, or before the cursor, it did not; these
        are not distinguished.
        """
        touched = effect.touched
        if touched is not None and not _meet(touched, self.fields):
            return False
        is_visible = touched is None or _meet(touched, self.visible)
        before = Truth.FALSE if effect.before is None else self.test(effect.before)
        if is_visible and before is not Truth.FALSE:
            return True
        if touched is not None and self.deciding.isdisjoint(touched):
            return False  # it is found as before
        if self._looks_alike(effect.before, effect.after):
            after = before
        else:
            after = Truth.FALSE if effect.after is None else self.test(effect.after)
        if is_visible:
            return after is not Truth.FALSE
        return before is not after or before is Truth.UNKNOWN

    def _looks_alike(self, before: Image | None, after: Image | None) -> bool:
        """Whether nothing that decides has changed, so that one look is enough."""
        if before is None or after is None or before.present is not after.present:
            return False
        names = self.deciding - {ID[0]}
        return all(
            name in before.known
            and name in after.known
            and _alike(before.values.get(name), after.values.get(name))
            for name in names
        )


def _alike(one: Any, other: Any) -> bool:
    return one is other or ((key := key_of(one)) is not None and key == key_of(other))


def _meet(touched: AbstractSet[str], fields: AbstractSet[str] | None) -> bool:
    return bool(touched) if fields is None else not fields.isdisjoint(touched)


def _counted(query: RegisteredQuery) -> Iterable[str | None]:
    return (None,) if query.fields is None else query.fields


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
        """Forget a query."""
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

        Args:
            effects: What it did, object by object.
            budget: What matching may cost; None: `MAX_MATCH_COST`. Beyond that it may have
                changed the results of all queries.
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


class _PredicateTable:
    """Demands on what is at one path."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self._equal: dict[Any, set[str]] = {}
        self._elements: dict[Any, set[str]] = {}
        self._prefixes: dict[int, dict[str, set[str]]] = {}
        self._ranges: dict[int, Intervals] = {}

    def add(self, name: str, predicate: AccessPredicate, wanted: Container[str]) -> None:
        self.names[name] += 1
        match predicate:
            case Range(_, kind, low, high):
                self._ranges.setdefault(kind, Intervals()).add(name, low, high, wanted)
            case _:
                table, key = self._table(predicate)
                table.setdefault(key, set()).add(name)

    def discard(self, name: str, predicate: AccessPredicate) -> None:
        """Forget a predicate; `Intervals` forget theirs when they are rebuilt."""
        self.names[name] -= 1
        if not self.names[name]:
            del self.names[name]
        if not isinstance(predicate, Range):
            table, key = self._table(predicate)
            table[key].discard(name)
            if not table[key]:
                del table[key]

    def met(self, value: Any) -> Iterator[str]:
        """Return the names of the predicates that a value meets."""
        if value is MISSING:
            return
        key = key_of(value)
        if key is not None:
            yield from self._equal.get(key, ())
        if isinstance(value, str):
            for length, prefixes in self._prefixes.items():
                yield from prefixes.get(value[:length], ())
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
