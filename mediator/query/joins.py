"""Joins along references: each object is read once, with one round trip for each system.

A naive join would read the referenced object for every object of the outer side. Instead the
distinct references are collected and sent together (docs/papers/unnesting.md, the domain of the
bindings), and the objects are joined back here; a dangling reference joins nothing.
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
from mediator.query.reverse_joins import ReferringPage, ReverseSearch
from mediator.routing.fragments import reaching, resource_of
from mediator.routing.model import ClassRoute

__all__ = ["Joiner", "ResolveTornReads"]

CHUNK: Final = 1_000
"""Objects read in one call."""

ResolveTornReads: TypeAlias = Callable[
    [ClassRoute, Get, Sequence[Outcome | None]], Awaitable[Sequence[Outcome | None]]
]
"""Resolves torn reads: see `mediator.operations.torn_reads`."""

Find: TypeAlias = Callable[[Query], Awaitable[ReferringPage]]


@dataclass(eq=False)
class Joiner:
    """Executes the joins of one query.

    `find` executes another query within the budget of this one; `partial` holds the partial groups
    of joined objects.
    """

    _calls: StoreCalls
    _budget: Budget
    _route_of: Callable[[str], Awaitable[ClassRoute]]
    _resolve_torn: ResolveTornReads
    _find: Find
    _cache: dict[str, dict[str, Outcome | None]] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)

    async def join(self, query: Query, outer: Sequence[Outcome]) -> list[dict[str, Outcome | None]]:
        """Return the objects joined to each object, by alias."""
        joined: list[dict[str, Outcome | None]] = [{} for _ in outer]
        for join in query.joins:
            references = _references(join, outer, joined)
            objects = await self._look_up(query, join, references)
            for by_alias, reference in zip(joined, references, strict=True):
                by_alias[join.alias] = objects[reference] if isinstance(reference, str) else None
        return joined

    async def join_lists(
        self,
        query: Query,
        outer: Sequence[Outcome],
        joined: Sequence[Mapping[str, Outcome | None]],
    ) -> list[dict[str, Sequence[Outcome]]]:
        """Return the lists joined to each object, by alias, given the result of `join`."""
        lists: list[dict[str, Sequence[Outcome]]] = [{} for _ in outer]
        for join in query.list_joins:
            references = [_elements(value) for value in _references(join, outer, joined)]
            objects = await self._look_up(query, join, chain.from_iterable(references))
            for by_alias, ids in zip(lists, references, strict=True):
                outcomes = (objects[id_] for id_ in ids)
                by_alias[join.alias] = [outcome for outcome in outcomes if outcome is not None]
        for reverse in query.reverse_joins:
            referring = await self._find_referring(
                query, reverse, [outcome.id for outcome in outer]
            )
            for by_alias, outcome in zip(lists, outer, strict=True):
                by_alias[reverse.alias] = referring[outcome.id]
        return lists

    async def _find_referring(
        self, query: Query, join: ReverseJoin, ids: Sequence[str]
    ) -> Mapping[str, Sequence[Outcome]]:
        search = ReverseSearch(query, join, ids)
        while (step := search.next()) is not None:
            page = await self._find(step)
            search.add(page)
            self.partial.update(page.partial)
        return search.joined

    async def _look_up(
        self, query: Query, join: Join, references: Iterable[object]
    ) -> Mapping[str, Outcome | None]:
        """Return the objects that references lead to, or None if missing."""
        cached = self._cache.setdefault(join.alias, {})
        missing = dict.fromkeys(r for r in references if isinstance(r, str) and r not in cached)
        # Cache None as well, so that it is not read again.
        cached |= dict.fromkeys(missing) | await self._read(query, join, list(missing))
        return cached

    async def _read(self, query: Query, join: Join, ids: Sequence[str]) -> dict[str, Outcome]:
        route = await self._route_of(join.class_name)
        # Only the anchor decides whether an object exists.
        fields = reaching(route, _needed(query, join), route.anchor)
        resource = Get(query.database, join.class_name, "", fields)
        objects: dict[str, Outcome] = {}
        pages, remaining = ObjectPages(route.schema.fields, resource.fields, CHUNK), ids
        while remaining:
            chunk, remaining = remaining[: pages.count], remaining[pages.count :]
            self._budget.remaining_s()
            outcomes = await read_objects(self._calls, route, resource, chunk)
            for fragment, _ in resource_of(route, resource.fields).fragments:
                self._budget.spend(fragment.system, len(chunk))
            outcomes = list(await self._resolve_torn(route, resource, outcomes))
            existing = [outcome for outcome in outcomes if outcome is not None]
            self._budget.admit(await pages.measure([outcome.values or {} for outcome in existing]))
            objects |= {outcome.id: outcome for outcome in existing}
            self.partial.update(*(outcome.partial for outcome in existing))
        return objects


def _needed(query: Query, join: Join) -> tuple[str, ...] | None:
    """Return the fields of a joined object that are returned or mentioned in the query."""
    if join.fields is None:
        return None
    names = {path[1] for path in query.paths if path[0] == join.alias and path[1:] != ID}
    return tuple(sorted(names | set(join.fields)))


def _references(
    join: Join, outer: Sequence[Outcome], joined: Sequence[Mapping[str, Outcome | None]]
) -> list[object]:
    pairs = zip(outer, joined, strict=True)
    return [_reference(join, outcome, by_alias) for outcome, by_alias in pairs]


def _elements(references: object) -> Sequence[str]:
    """Return the references of a list without nulls."""
    elements = references if isinstance(references, list) else ()
    return [element for element in elements if isinstance(element, str)]


def _reference(join: Join, outcome: Outcome, by_alias: Mapping[str, Outcome | None]) -> object:
    if len(join.reference) == 1:
        return value_at(outcome.values or {}, join.reference)
    joined_outcome = by_alias.get(join.reference[0])
    return (
        None
        if joined_outcome is None
        else value_at(joined_outcome.values or {}, join.reference[1:])
    )
