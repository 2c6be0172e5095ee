"""Joins along references: each object is read once, with one round trip for each system.

For every object of the outer side one would read the object that it points to. Instead the
distinct references are collected and sent together (docs/papers/unnesting.md, the domain of the
bindings), and the objects are joined back here; a reference that leads nowhere joins nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

from mediator.model.evaluate import value_at
from mediator.model.filters import ID
from mediator.model.operations import Get, Outcome
from mediator.model.query import Join, Query, ReverseJoin
from mediator.operations.calls import StoreCalls
from mediator.operations.torn_reads import read_objects
from mediator.query.budget import Budget
from mediator.query.object_pages import ObjectPages
from mediator.query.reverse_joins import Found, ReverseSearch
from mediator.routing.fragments import reaching, resource_of
from mediator.routing.model import ClassRoute

__all__ = ["Joiner", "ResolveTornReads"]

CHUNK: Final = 1_000
"""Objects read in one call."""

ResolveTornReads: TypeAlias = Callable[
    [ClassRoute, Get, Sequence[Outcome | None]], Awaitable[Sequence[Outcome | None]]
]
"""Resolves torn reads: see `mediator.operations.torn_reads`."""

Find: TypeAlias = Callable[[Query], Awaitable[Found]]


@dataclass(eq=False)
class Joiner:
    """Joins what one query names.

    `find` executes another query within the budget of this one; `partial` are groups of what was
    joined that are partial.
    """

    _calls: StoreCalls
    _budget: Budget
    _route_of: Callable[[str], Awaitable[ClassRoute]]
    _resolve_torn: ResolveTornReads
    _find: Find
    _known: dict[str, dict[str, Outcome | None]] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)

    async def join(self, query: Query, outer: Sequence[Outcome]) -> list[dict[str, Outcome | None]]:
        """Return what is joined to each object, by alias."""
        joined: list[dict[str, Outcome | None]] = [{} for _ in outer]
        for join in query.joins:
            references = _references(join, outer, joined)
            known = await self._found(query, join, references)
            for others, reference in zip(joined, references, strict=True):
                others[join.alias] = known[reference] if isinstance(reference, str) else None
        return joined

    async def join_lists(
        self,
        query: Query,
        outer: Sequence[Outcome],
        joined: Sequence[Mapping[str, Outcome | None]],
    ) -> list[dict[str, Sequence[Outcome]]]:
        """Return the lists that are joined to each object, by alias, given what `join` returned."""
        lists: list[dict[str, Sequence[Outcome]]] = [{} for _ in outer]
        for join in query.list_joins:
            references = [_elements(each) for each in _references(join, outer, joined)]
            known = await self._found(query, join, chain.from_iterable(references))
            for own, ids in zip(lists, references, strict=True):
                found = (known[id_] for id_ in ids)
                own[join.alias] = [each for each in found if each is not None]
        for reverse in query.reverse_joins:
            referring = await self._referring(query, reverse, [outcome.id for outcome in outer])
            for own, outcome in zip(lists, outer, strict=True):
                own[reverse.alias] = referring[outcome.id]
        return lists

    async def _referring(
        self, query: Query, join: ReverseJoin, ids: Sequence[str]
    ) -> Mapping[str, Sequence[Outcome]]:
        search = ReverseSearch(query, join, ids)
        while (step := search.next()) is not None:
            found = await self._find(step)
            search.add(found)
            self.partial.update(found.partial)
        return search.joined

    async def _found(
        self, query: Query, join: Join, references: Iterable[object]
    ) -> Mapping[str, Outcome | None]:
        """Return the objects that references lead to, and None for what is not found."""
        known = self._known.setdefault(join.alias, {})
        wanted = dict.fromkeys(r for r in references if isinstance(r, str) and r not in known)
        # None, too, so that it is not read again.
        known |= dict.fromkeys(wanted) | await self._read(query, join, list(wanted))
        return known

    async def _read(self, query: Query, join: Join, ids: Sequence[str]) -> dict[str, Outcome]:
        route = await self._route_of(join.class_name)
        # Only the anchor decides whether an object exists.
        fields = reaching(route, _needed(query, join), route.anchor)
        resource = Get(query.database, join.class_name, "", fields)
        objects: dict[str, Outcome] = {}
        pages, left = ObjectPages(route.schema.fields, resource.fields, CHUNK), ids
        while left:
            chunk, left = left[: pages.count], left[pages.count :]
            self._budget.left_s()
            outcomes = await read_objects(self._calls, route, resource, chunk)
            for fragment, _ in resource_of(route, resource.fields).fragments:
                self._budget.spend(fragment.system, len(chunk))
            outcomes = list(await self._resolve_torn(route, resource, outcomes))
            there = [outcome for outcome in outcomes if outcome is not None]
            self._budget.admit(await pages.measure([outcome.values or {} for outcome in there]))
            objects |= {outcome.id: outcome for outcome in there}
            self.partial.update(*(outcome.partial for outcome in there))
        return objects


def _needed(query: Query, join: Join) -> tuple[str, ...] | None:
    """Return the fields of a joined object that are returned, or that the query mentions."""
    if join.fields is None:
        return None
    names = {path[1] for path in query.paths if path[0] == join.alias and path[1:] != ID}
    return tuple(sorted(names | set(join.fields)))


def _references(
    join: Join, outer: Sequence[Outcome], joined: Sequence[Mapping[str, Outcome | None]]
) -> list[object]:
    pairs = zip(outer, joined, strict=True)
    return [_reference(join, own, others) for own, others in pairs]


def _elements(references: object) -> Sequence[str]:
    """Return the references of a list that are none of null."""
    elements = references if isinstance(references, list) else ()
    return [each for each in elements if isinstance(each, str)]


def _reference(join: Join, own: Outcome, others: Mapping[str, Outcome | None]) -> object:
    if len(join.reference) == 1:
        return value_at(own.values or {}, join.reference)
    other = others.get(join.reference[0])
    return None if other is None else value_at(other.values or {}, join.reference[1:])
