"""Reverse joins: the objects whose references point to those that a query has found.

They are searched for all objects of a page together, in their order, with as many as would be
needed if each object had all it may have. Objects that then have enough are left out of the next
search, which goes on where this one stopped. So an object to which very many refer takes one
search more, whose work does not grow with their number where an index supplies the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mediator.model.evaluate import value_at
from mediator.model.filters import In, all_of, conjuncts
from mediator.model.operations import Outcome
from mediator.model.query import Position, Query, ReverseJoin

__all__ = ["Found", "ReverseSearch"]

MOST: Final = 1_000
"""Objects that one search returns at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """A page of objects, the position of the last one if more follow, and the groups partial."""

    objects: Sequence[Outcome]
    next: Position | None
    partial: Sequence[str] = ()


class ReverseSearch:
    """The searches for one reverse join of one page of objects."""

    def __init__(self, query: Query, join: ReverseJoin, ids: Sequence[str]) -> None:
        self._query = query
        self._join = join
        self._joined: dict[str, list[Outcome]] = {id_: [] for id_ in ids}
        self._short = [*self._joined]
        self._seen: set[str] = set()
        self._after: Position | None = None

    @property
    def joined(self) -> Mapping[str, Sequence[Outcome]]:
        """What is joined to each object, by its id."""
        return self._joined

    def next(self) -> Query | None:
        """Return the next search; None if all objects have what they may have."""
        if not self._short:
            return None
        join, query = self._join, self._query
        refers = In((join.reference,), tuple(self._short))
        fields = None if join.fields is None else tuple(sorted({*join.fields, join.reference}))
        return Query(
            query.database,
            join.class_name,
            filter=all_of([refers, *conjuncts(join.filter)]),
            order=join.order,
            limit=min(MOST, len(self._short) * join.limit),
            after=self._after,
            fields=fields,
            allow_scan=query.allow_scan,
        )

    def add(self, found: Found) -> None:
        """Take what the search has found."""
        for outcome in found.objects:
            reference = value_at(outcome.values or {}, (self._join.reference,))
            own = self._joined[reference] if isinstance(reference, str) else []
            # An object whose position changes between two searches may be found twice.
            if outcome.id not in self._seen and len(own) < self._join.limit:
                self._seen.add(outcome.id)
                own.append(outcome)
        self._after = found.next
        more = self._short if found.next is not None else ()
        self._short = [id_ for id_ in more if len(self._joined[id_]) < self._join.limit]
