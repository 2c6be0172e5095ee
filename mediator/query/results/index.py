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
from mediator.query.results.access_predicates import (
    Demand,
    Element,
    Equal,
    Prefix,
    Range,
    access_predicates_of,
)
from mediator.query.results.intervals import Intervals
from mediator.query.results.match_budget import Cost, Work, cost_of
from mediator.query.results.three_valued import NO, Judge, Truth, judge_of
from mediator.schema.tree import MISSING

__all__ = ["QueryIndex", "RegisteredQuery"]


@dataclass(frozen=True)
class RegisteredQuery:
    """A query without joins and aggregates, as far as it decides which writes change its result."""

    query: Query

    @cached_property
    def judge(self) -> Judge:
        """Tells whether an object is found, wherever in the order."""
        return judge_of(self.query.filter)

    @cached_property
    def _cost(self) -> Cost:
        return cost_of(self.query.filter)

    def work(self, effect: Effect) -> int:
        """Return what it costs to judge a write by this query, in the units of `Work`."""
        return self._cost.of(effect.before) + self._cost.of(effect.after)

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

        Where objects that are found lie beyond the limit, or before the cursor, it did not; that is
        not told apart.
        """
        touched = effect.touched
        if touched is not None and not _meet(touched, self.fields):
            return False
        shown = touched is None or _meet(touched, self.visible)
        before = NO if effect.before is None else self.judge(effect.before)
        if shown and before is not NO:
            return True
        if touched is not None and self.deciding.isdisjoint(touched):
            return False  # it is found as before
        if self._looks_alike(effect.before, effect.after):
            after = before
        else:
            after = NO if effect.after is None else self.judge(effect.after)
        if shown:
            return after is not NO
        return before is not after or before is Truth.PERHAPS

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
    whose demands they meet, and these are judged by their whole filters.
    """

    def __init__(self) -> None:
        self._queries: dict[str, RegisteredQuery] = {}
        self._paths: dict[Path, _Demands] = {}
        self._covers: dict[str, tuple[Demand, ...]] = {}
        self._loose: set[str] = set()
        self._strange: set[str] = set()
        self._counts: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._queries) + len(self._strange)

    def __contains__(self, name: str) -> bool:
        return name in self._queries or name in self._strange

    def __iter__(self) -> Iterator[str]:
        yield from self._queries
        yield from self._strange

    def put(self, name: str, query: RegisteredQuery | None) -> None:
        """Register a query; None: one that is not understood, which every write may change."""
        self.discard(name)
        if query is None:
            self._strange.add(name)
            return
        self._queries[name] = query
        self._counts.update(_counted(query))
        cover = access_predicates_of(query.query.filter)
        if cover is None:
            self._loose.add(name)
            return
        self._covers[name] = cover
        for demand in cover:
            self._paths.setdefault(demand.path, _Demands()).add(name, demand, self._queries)

    def discard(self, name: str) -> None:
        """Forget a query."""
        self._strange.discard(name)
        self._loose.discard(name)
        query = self._queries.pop(name, None)
        if query is not None:
            self._counts.subtract(_counted(query))
        for demand in self._covers.pop(name, ()):
            self._paths[demand.path].discard(name, demand)

    def depends_on(self, touched: Iterable[str] | None) -> bool:
        """Whether there are queries that a change of these fields may concern; None: of all."""
        if self._strange or touched is None:
            return len(self) > 0
        return self._counts[None] > 0 or any(self._counts[name] > 0 for name in touched)

    def changed(self, effects: Iterable[Effect], work: Work | None = None) -> AbstractSet[str]:
        """Return the names of the queries whose results a write may have changed.

        Args:
            effects: What it did, object by object.
            work: What may be spent on judging it; None: `MOST_WORK`. Beyond that it may have
                changed the results of all queries.
        """
        work, found = work or Work(), set[str]()
        for effect in effects:
            if self.depends_on(effect.touched) and not self._judge(effect, found, work):
                return self._queries.keys() | self._strange
        return found

    def _judge(self, effect: Effect, found: set[str], work: Work) -> bool:
        """Add the queries whose results an effect may have changed; False if that is too much."""
        found |= self._strange
        seen: set[str] = set()
        for name in self._candidates(effect):
            query = self._queries.get(name)
            if query is None or name in seen or name in found:
                continue
            if not work.spend(query.work(effect)):
                return False
            seen.add(name)
            if query.changes(effect):
                found.add(name)
        return True

    def _candidates(self, effect: Effect) -> Iterator[str]:
        yield from self._loose
        yield from self._met(effect.before)
        yield from self._met(effect.after)

    def _met(self, image: Image | None) -> Iterator[str]:
        """Find the queries one of whose demands an object meets, or may meet."""
        if image is None:
            return
        for path, demands in self._paths.items():
            if image.knows(path):
                yield from demands.met(image.lookup(path))
            else:
                yield from demands.names


class _Demands:
    """Demands on what is at one path."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self._equal: dict[Any, set[str]] = {}
        self._elements: dict[Any, set[str]] = {}
        self._prefixes: dict[int, dict[str, set[str]]] = {}
        self._ranges: dict[int, Intervals] = {}

    def add(self, name: str, demand: Demand, wanted: Container[str]) -> None:
        self.names[name] += 1
        match demand:
            case Range(_, kind, low, high):
                self._ranges.setdefault(kind, Intervals()).add(name, low, high, wanted)
            case _:
                table, key = self._place(demand)
                table.setdefault(key, set()).add(name)

    def discard(self, name: str, demand: Demand) -> None:
        """Forget a demand; intervals are forgotten by those who ask for names that are wanted."""
        self.names[name] -= 1
        if not self.names[name]:
            del self.names[name]
        if not isinstance(demand, Range):
            table, key = self._place(demand)
            table[key].discard(name)
            if not table[key]:
                del table[key]

    def met(self, value: Any) -> Iterator[str]:
        """Return the names of the demands that a value meets."""
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

    def _place(self, demand: Equal | Element | Prefix) -> tuple[dict[Any, set[str]], Any]:
        match demand:
            case Equal(_, key):
                return self._equal, key
            case Element(_, key):
                return self._elements, key
            case Prefix(_, text):
                return self._prefixes.setdefault(len(text), {}), text
