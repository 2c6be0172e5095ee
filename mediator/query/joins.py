"""Joins along references: each object is read once, with one round trip for each system.

For every object of the outer side one would read the object that it points to. Instead the
distinct references are collected and sent together (docs/papers/unnesting.md, the domain of the
bindings), and the objects are joined back here; a reference that leads nowhere joins nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from mediator.model.evaluate import value_at
from mediator.model.filters import ID, Path, paths_of
from mediator.model.operations import Get, Outcome
from mediator.model.query import Join, Query
from mediator.operations.calls import StoreCalls
from mediator.operations.torn_reads import read_objects
from mediator.query.budget import Budget
from mediator.routing.fragments import reaching, resource_of
from mediator.routing.model import ClassRoute

__all__ = ["Joined", "Joiner"]

CHUNK: Final = 1_000
"""Objects read in one call."""

Joined = dict[str, Outcome | None]
"""What is joined to one object, by alias."""


class Joiner:
    """Joins what one query names; each object is read once.

    Attributes:
        partial: Groups of what was joined that are partial.
    """

    def __init__(
        self,
        calls: StoreCalls,
        budget: Budget,
        route_of: Callable[[str], Awaitable[ClassRoute]],
        resolve_torn: Callable[
            [ClassRoute, Get, Sequence[Outcome | None]], Awaitable[Sequence[Outcome | None]]
        ],
    ) -> None:
        self._calls = calls
        self._budget = budget
        self._route_of = route_of
        self._resolve_torn = resolve_torn
        self._known: dict[str, dict[str, Outcome | None]] = {}
        self.partial: set[str] = set()

    async def join(self, query: Query, outer: Sequence[Outcome]) -> list[Joined]:
        """Return what is joined to each object."""
        joined: list[Joined] = [{} for _ in outer]
        for join in query.joins:
            references = [
                _reference(join, own, others) for own, others in zip(outer, joined, strict=True)
            ]
            known = self._known.setdefault(join.alias, {})
            wanted = dict.fromkeys(r for r in references if isinstance(r, str) and r not in known)
            known |= dict.fromkeys(wanted) | await self._read(query, join, list(wanted))
            for others, reference in zip(joined, references, strict=True):
                others[join.alias] = known[reference] if isinstance(reference, str) else None
        return joined

    async def _read(self, query: Query, join: Join, ids: Sequence[str]) -> dict[str, Outcome]:
        route = await self._route_of(join.class_name)
        # Only the anchor decides whether an object exists.
        fields = reaching(route, needed(query, join), route.anchor)
        resource = Get(query.database, join.class_name, "", fields)
        objects: dict[str, Outcome] = {}
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            self._budget.left_s()
            outcomes = await read_objects(self._calls, route, resource, chunk)
            for fragment, _ in resource_of(route, resource.fields).fragments:
                self._budget.spend(fragment.system, len(chunk))
            outcomes = list(await self._resolve_torn(route, resource, outcomes))
            there = [outcome for outcome in outcomes if outcome is not None]
            objects |= {outcome.id: outcome for outcome in there}
            self.partial.update(*(outcome.partial for outcome in there))
        return objects


def needed(query: Query, join: Join) -> tuple[str, ...] | None:
    """Return the fields of a joined object that are returned, compared, ordered or followed."""
    if join.fields is None:
        return None
    paths: set[Path] = set(paths_of(query.filter))
    paths |= {level.path for level in query.order}
    paths |= {other.reference for other in query.joins}
    if query.aggregate is not None:
        paths |= {*query.aggregate.group}
        paths |= {c.path for c in query.aggregate.compute.values() if c.path is not None}
    names = {path[1] for path in paths if path[0] == join.alias and path[1:] != ID}
    return tuple(sorted(names | set(join.fields)))


def _reference(join: Join, own: Outcome, others: Joined) -> object:
    if len(join.reference) == 1:
        return value_at(own.values or {}, join.reference)
    other = others.get(join.reference[0])
    return None if other is None else value_at(other.values or {}, join.reference[1:])
