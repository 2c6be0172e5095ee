"""Reverse joins: the objects whose references point to the objects that a query found.

One search covers all objects of a page, in the order of the join, with as many results as all of
them together may have. Objects that then have enough are left out of the next search, which
continues where this one stopped. So an object with very many referring ones takes one more search,
whose work does not grow with their number if an index supplies the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mediator.model.evaluate import value_at
from mediator.model.filters import In, all_of, conjuncts
from mediator.model.operations import Outcome
from mediator.model.query import Position, Query, ReverseJoin

__all__ = ["ReferringPage", "ReverseSearch"]

MAX_OBJECTS: Final = 1_000
"""Limit of objects that one search returns."""


@dataclass(frozen=True, slots=True)
class ReferringPage:
    """A page of objects, the position of the last one if more follow, and partial groups."""

    objects: Sequence[Outcome]
    next: Position | None
    partial: Sequence[str] = ()


class ReverseSearch:
    """The searches for one reverse join of one page of objects."""

    def __init__(self, query: Query, join: ReverseJoin, ids: Sequence[str]) -> None:
        self._query = query
        self._join = join
        self._joined: dict[str, list[Outcome]] = {id_: [] for id_ in ids}
        self._incomplete = [*self._joined]
        self._seen: set[str] = set()
        self._after: Position | None = None

    @property
    def joined(self) -> Mapping[str, Sequence[Outcome]]:
        """The objects joined to each object, by its id."""
        return self._joined

    def next(self) -> Query | None:
        """Return the next search; None if all objects are complete."""
        if not self._incomplete:
            return None
        join, query = self._join, self._query
        refers = In((join.reference,), tuple(self._incomplete))
        fields = None if join.fields is None else tuple(sorted({*join.fields, join.reference}))
        return Query(
            query.database,
            join.class_name,
            filter=all_of([refers, *conjuncts(join.filter)]),
            order=join.order,
            limit=min(MAX_OBJECTS, len(self._incomplete) * join.limit),
            after=self._after,
            fields=fields,
            allow_scan=query.allow_scan,
        )

    def add(self, page: ReferringPage) -> None:
        """Add a page of the search."""
        for outcome in page.objects:
            reference = value_at(outcome.values or {}, (self._join.reference,))
            joined = self._joined[reference] if isinstance(reference, str) else []
            # An object whose position changes between two searches may be found twice.
            if outcome.id not in self._seen and len(joined) < self._join.limit:
                self._seen.add(outcome.id)
                joined.append(outcome)
        self._after = page.next
        candidates = self._incomplete if page.next is not None else ()
        self._incomplete = [id_ for id_ in candidates if len(self._joined[id_]) < self._join.limit]
