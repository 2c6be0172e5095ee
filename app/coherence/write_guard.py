"""The sketch as the mediator's guard: called around every write (docs/protocol.md, "Writing")."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from os import urandom
from typing import Final, TypeAlias, TypeVar

from app.coherence.cached_leases import CachedLeases
from app.coherence.layouts import ClassLayouts
from app.coherence.query_registry import (
    AffectedQueries,
    OnResultsChanged,
    QueryRegistry,
    ResultsChanged,
)
from mediator.base.clock import Clock
from mediator.base.errors import Unavailable
from mediator.model.effects import Effect
from mediator.model.guard import CacheKey, Effects, WriteToken
from mediator.query.invalidation.registered_query import MatchBudget
from sketch.protocol.bounds import KEYS_AT_ONCE
from sketch.protocol.port import (
    BeginResult,
    EndResult,
    Partition,
    ResultChanges,
    ServerSketch,
    SketchUnavailable,
)
from sketch.ttl import TtlEstimator

__all__ = ["PurgeFirst", "SketchGuard", "answered"]

_T = TypeVar("_T")

_SYSTEM: Final = "the cache sketch"
_ENDED: Final = (EndResult.DONE, EndResult.CONTENDED)
_ATTEMPTS: Final = 10
_PATIENT_ATTEMPTS: Final = 2
"""How often a write looks for the results it may have changed. From the third time on that it was
behind it pauses registrations, and is up to date the next time."""

_partition: Final = lru_cache(maxsize=4096)(Partition)
"""Cached: making one takes half as long as all the rest of a write under a cached lease."""

PurgeFirst: TypeAlias = Callable[[Partition, Sequence[str]], Awaitable[object]]


@dataclass(eq=False)
class SketchGuard:
    """Implements `mediator.model.guard.WriteGuard`.

    Attributes:
        _estimator: Learns how often keys are written.
        _layouts: Has the sketch know what keys stand for.
        _leases: Caches write leases, once it is started.
        purge_first: Purges keys from caches before their write is acknowledged, as far as that is
            possible in time; None: no write waits for that.
        _on_end: Called when writes have ended and purges may be due; None: nothing is purged.
    """

    wants_versions = True
    max_keys = KEYS_AT_ONCE

    _sketch: ServerSketch
    _estimator: TtlEstimator
    queries: QueryRegistry
    _layouts: ClassLayouts
    _leases: CachedLeases
    _on_results_changed: OnResultsChanged
    _clock: Clock
    purge_first: PurgeFirst | None = None
    _on_end: Callable[[], None] | None = None

    async def begin(self, database: str, keys: Sequence[CacheKey]) -> WriteToken:
        if len(keys) == 1:
            return await self._begin_one(_partition(database, keys[0].class_name), str(keys[0]))
        names = _by_partition(database, keys)
        token = _token(names)
        await _done([self._begin(partition, own, token) for partition, own in names.items()])
        return token

    async def _begin_one(self, partition: Partition, key: str) -> WriteToken:
        """Announce a write to one key, unless its lease is cached; return the token of either."""
        if (route := self._layouts.adopted(partition)) is not None:
            token = self._leases.acquire(partition, key, route)
            if token is not None:
                return token
        [token] = await _done([self._begin_lease(partition, key)])
        return token

    async def _begin_lease(self, partition: Partition, key: str) -> WriteToken:
        """Announce a write to one key, and cache its lease if that is allowed."""
        route = await self._layouts.adopt(partition)
        # Before the request: the lease must not outlast, here, the one in the sketch.
        token, requested_s = _token([partition]), self._clock.monotonic()
        if (await self._begin(partition, [key], token)).lease_cacheable:
            self._leases.cache(partition, key, token, route, requested_s)
        return token

    async def _begin(
        self, partition: Partition, keys: Sequence[str], token: WriteToken
    ) -> BeginResult:
        await self._layouts.adopt(partition)
        result = await self._sketch.begin(partition, keys, token.text)
        # Before the write; for queries that are registered later `end` is refused.
        if result.sequence != self.queries.sequence(partition):
            await self.queries.catch_up(partition)
        return result

    def depends_on(self, database: str, class_name: str, touched: Collection[str] | None) -> bool:
        return self.queries.depends_on(_partition(database, class_name), touched)

    async def end(
        self,
        database: str,
        token: WriteToken,
        versions: Mapping[CacheKey, int],
        effects: Effects | None = None,
        created: Collection[CacheKey] = (),
    ) -> None:
        written = {_partition(database, name): dict[str, int]() for name in token.classes}
        for key, version in versions.items():
            written.setdefault(_partition(database, key.class_name), {})[str(key)] = version
        now_s, new = self._clock.now(), {str(key) for key in created}
        for partition, known in written.items():
            if known and self._is_cached(partition):
                self._estimator.wrote(partition, tuple(known), now_s, new)
        # The lease stays: no cache holds the key, so there is nothing to purge or to invalidate.
        if await self._leases.finish(token):
            return
        changed = await _done(
            [self._end(partition, token, known, effects) for partition, known in written.items()]
        )
        if self._on_end is not None:
            self._on_end()
        if self.purge_first is not None:
            results = zip(written.items(), changed, strict=True)
            await _purge(self.purge_first, {p: [*own, *more] for (p, own), more in results})

    def _is_cached(self, partition: Partition) -> bool:
        """Whether copies of a class are handed out; of others, no TTL is ever estimated."""
        route = self._layouts.adopted(partition)
        return route is not None and route.schema.cache.visibility != "none"

    async def invalidate_results(self, database: str, class_name: str) -> None:
        partition = Partition(database, class_name)
        # A query that is registered from here on reads what was written before.
        [affected] = await _done([self.queries.invalidate_all(partition)])
        self._report(partition, affected)
        if self.purge_first is not None:
            await _purge(self.purge_first, {partition: tuple(affected.numbers)})

    async def adopt_layout(self, database: str, class_name: str) -> None:
        """Announce the layout of a class; raises `Unavailable`: the next call does it."""
        await _done([self._layouts.adopt(Partition(database, class_name))])

    async def invalidate_class(self, database: str, class_name: str) -> None:
        await _done([self._sketch.invalidate(Partition(database, class_name))])

    async def _end(
        self,
        partition: Partition,
        token: WriteToken,
        versions: Mapping[str, int],
        effects: Effects | None,
    ) -> Sequence[str]:
        """End a write, once all results that it may have changed are known; returns their keys.

        Each attempt may find others; what an earlier one has found is stale as well.
        """
        changed: dict[str, None] = {}
        exclusive = effects is not None and self.queries.depends_on(partition, None)
        budget = MatchBudget()
        for attempt in range(_ATTEMPTS):
            own_effects = partial(_effects_on, partition, effects, exclusive=exclusive)
            affected = self.queries.affected(partition, own_effects, budget)
            queries = tuple(affected.numbers)
            pauses = attempt >= _PATIENT_ATTEMPTS
            changes = ResultChanges(queries, affected.sequence, exclusive, pauses)
            result = await self._sketch.end(partition, token.text, versions, changes)
            if queries:
                changed.update(dict.fromkeys(queries))
                self.queries.forget(partition, affected)
                self._report(partition, affected)
            if result is EndResult.CONTENDED and len(versions) == 1:
                self._leases.avoid(partition, *versions)
            if result in _ENDED:
                return tuple(changed)
            if result is EndResult.BEHIND:
                await self.queries.catch_up(partition)
            else:  # others wrote the same keys: what they were before this write is not known
                exclusive = False
        raise SketchUnavailable("Queries are registered faster than they are learned.")

    def _report(self, partition: Partition, affected: AffectedQueries) -> None:
        if affected.numbers:
            known = self.queries.count(partition)
            self._on_results_changed(ResultsChanged(partition, len(affected.numbers), known))


def _by_partition(database: str, keys: Iterable[CacheKey]) -> dict[Partition, list[str]]:
    names: dict[Partition, list[str]] = {}
    for key in keys:
        names.setdefault(_partition(database, key.class_name), []).append(str(key))
    return names


def _token(partitions: Iterable[Partition]) -> WriteToken:
    return WriteToken(urandom(16).hex(), tuple(it.class_name for it in partitions))


def _effects_on(
    partition: Partition, effects: Effects | None, *, exclusive: bool
) -> Sequence[Effect] | None:
    """Return what a write did to a class; None: it may be anything."""
    return None if effects is None else effects(exclusive).get(partition.class_name, ())


async def _purge(purge_first: PurgeFirst, keys: Mapping[Partition, Sequence[str]]) -> None:
    await asyncio.gather(*(purge_first(*each) for each in keys.items() if each[1]))


@contextmanager
def answered() -> Iterator[None]:
    """Raise `Unavailable` where the sketch does not answer."""
    try:
        yield
    except SketchUnavailable as error:
        raise Unavailable(str(error), system=_SYSTEM) from error


async def _done(calls: Sequence[Awaitable[_T]]) -> list[_T]:
    try:
        if len(calls) == 1:
            return [await calls[0]]
        return await asyncio.gather(*calls)
    except SketchUnavailable as error:
        raise Unavailable("The cache sketch does not answer.", system=_SYSTEM) from error
