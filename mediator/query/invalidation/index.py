"""The index over the filters of registered queries: finds those that a write may affect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from mediator.model.effects import Effect
from mediator.query.invalidation.registered_query import MatchBudget, RegisteredQuery
from mediator.query.predicate_index import PredicateIndex

__all__ = ["QueryIndex"]


class QueryIndex:
    """Registered queries, searched for those whose results a write may have changed.

    A write is matched in two steps: the values of the object, before and after, lead to the queries
    whose predicates they meet; then the whole filters of these are evaluated.
    """

    def __init__(self) -> None:
        self._queries: dict[str, RegisteredQuery] = {}
        self._filters = PredicateIndex[str]()
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
        """Register a query; None: an opaque one, whose result every write may change."""
        self.discard(name)
        if query is None:
            self._opaque.add(name)
            return
        self._queries[name] = query
        self._counts.update(_counted_fields(query))
        self._filters.put(name, query.query.filter)

    def discard(self, name: str) -> None:
        self._opaque.discard(name)
        query = self._queries.pop(name, None)
        if query is not None:
            self._counts.subtract(_counted_fields(query))
        self._filters.discard(name)

    def depends_on(self, touched: Iterable[str] | None) -> bool:
        """Whether a change of these fields (None: of all) may affect any query."""
        if self._opaque or touched is None:
            return len(self) > 0
        return self._counts[None] > 0 or any(self._counts[name] > 0 for name in touched)

    def changed(
        self, effects: Iterable[Effect], budget: MatchBudget | None = None
    ) -> AbstractSet[str]:
        """Return the names of the queries whose results a write may have changed.

        `budget` bounds the cost of matching; None: `MAX_MATCH_COST`. Beyond it all queries are
        returned.
        """
        budget, matched = budget or MatchBudget(), set[str]()
        for effect in effects:
            if self.depends_on(effect.touched) and not self._match(effect, matched, budget):
                return self._queries.keys() | self._opaque
        return matched

    def _match(self, effect: Effect, matched: set[str], budget: MatchBudget) -> bool:
        """Add the queries whose results an effect may have changed; False if too costly."""
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
        yield from self._filters.uncovered
        yield from self._filters.met(effect.before)
        yield from self._filters.met(effect.after)


def _counted_fields(query: RegisteredQuery) -> Iterable[str | None]:
    return (None,) if query.fields is None else query.fields
