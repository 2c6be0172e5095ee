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

__all__ = ["PurgeFirst", "SketchGuard", "translating_sketch_errors"]

_T = TypeVar("_T")

_SYSTEM: Final = "the cache sketch"
_ENDED_RESULTS: Final = (EndResult.DONE, EndResult.CONTENDED)
_MAX_ATTEMPTS: Final = 10
_ATTEMPTS_BEFORE_PAUSE: Final = 2
"""Attempts of a write to find the results that it may have changed, before it pauses registrations,
and so is up to date the next time."""

_partition: Final = lru_cache(maxsize=4096)(Partition)
"""Cached: creating one takes half as long as the rest of a write under a cached lease."""

PurgeFirst: TypeAlias = Callable[[Partition, Sequence[str]], Awaitable[object]]


@dataclass(eq=False)
class SketchGuard:
    """Implements `mediator.model.guard.WriteGuard`.

    Attributes:
        _estimator: Learns how often keys are written.
        _layouts: Announces layouts of keys to the sketch.
        _leases: Caches write leases, once started.
        purge_first: Purges keys from caches before their write is acknowledged, within a time
            limit; None: writes do not wait for purges.
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
        keys_by_partition = _by_partition(database, keys)
        token = _token(keys_by_partition)
        await _gather(
            [
                self._begin(partition, partition_keys, token)
                for partition, partition_keys in keys_by_partition.items()
            ]
        )
        return token

    async def _begin_one(self, partition: Partition, key: str) -> WriteToken:
        """Announce a write to one key, or use its cached lease; return the token."""
        if (route := self._layouts.adopted(partition)) is not None:
            token = self._leases.acquire(partition, key, route)
            if token is not None:
                return token
        [token] = await _gather([self._begin_lease(partition, key)])
        return token

    async def _begin_lease(self, partition: Partition, key: str) -> WriteToken:
        """Announce a write to one key, and cache its lease if the sketch allows it."""
        route = await self._layouts.adopt(partition)
        # Before the request: the cached lease must not outlast the one in the sketch.
        token, requested_s = _token([partition]), self._clock.monotonic()
        if (await self._begin(partition, [key], token)).lease_cacheable:
            self._leases.cache(partition, key, token, route, requested_s)
        return token

    async def _begin(
        self, partition: Partition, keys: Sequence[str], token: WriteToken
    ) -> BeginResult:
        await self._layouts.adopt(partition)
        result = await self._sketch.begin(partition, keys, token.text)
        # Before the write; if queries are registered later, `end` is refused.
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
        now_s, created_keys = self._clock.now(), {str(key) for key in created}
        for partition, key_versions in written.items():
            if key_versions and self._is_cached(partition):
                self._estimator.wrote(partition, tuple(key_versions), now_s, created_keys)
        # The lease stays: no cache holds the key, so there is nothing to purge or invalidate.
        if await self._leases.finish(token):
            return
        changed = await _gather(
            [
                self._end(partition, token, key_versions, effects)
                for partition, key_versions in written.items()
            ]
        )
        if self._on_end is not None:
            self._on_end()
        if self.purge_first is not None:
            results = zip(written.items(), changed, strict=True)
            await _purge(
                self.purge_first,
                {partition: [*keys, *result_keys] for (partition, keys), result_keys in results},
            )

    def _is_cached(self, partition: Partition) -> bool:
        """Whether answers of a class can be cached; otherwise TTLs are never estimated."""
        route = self._layouts.adopted(partition)
        return route is not None and route.schema.cache.visibility != "none"

    async def invalidate_results(self, database: str, class_name: str) -> None:
        partition = Partition(database, class_name)
        # A query that is registered later reads the earlier writes.
        [affected] = await _gather([self.queries.invalidate_all(partition)])
        self._report(partition, affected)
        if self.purge_first is not None:
            await _purge(self.purge_first, {partition: tuple(affected.numbers)})

    async def adopt_layout(self, database: str, class_name: str) -> None:
        """Announce the layout of a class; if it raises `Unavailable`, the next call does it."""
        await _gather([self._layouts.adopt(Partition(database, class_name))])

    async def invalidate_class(self, database: str, class_name: str) -> None:
        await _gather([self._sketch.invalidate(Partition(database, class_name))])

    async def _end(
        self,
        partition: Partition,
        token: WriteToken,
        versions: Mapping[str, int],
        effects: Effects | None,
    ) -> Sequence[str]:
        """End a write once all results that it may have changed are known; return their keys.

        Attempts can find different results; those of earlier attempts are also stale.
        """
        changed: dict[str, None] = {}
        exclusive = effects is not None and self.queries.depends_on(partition, None)
        budget = MatchBudget()
        for attempt in range(_MAX_ATTEMPTS):
            partition_effects = partial(_effects_on, partition, effects, exclusive=exclusive)
            affected = self.queries.affected(partition, partition_effects, budget)
            queries = tuple(affected.numbers)
            pauses = attempt >= _ATTEMPTS_BEFORE_PAUSE
            changes = ResultChanges(queries, affected.sequence, exclusive, pauses)
            result = await self._sketch.end(partition, token.text, versions, changes)
            if queries:
                changed.update(dict.fromkeys(queries))
                self.queries.forget(partition, affected)
                self._report(partition, affected)
            if result is EndResult.CONTENDED and len(versions) == 1:
                self._leases.avoid(partition, *versions)
            if result in _ENDED_RESULTS:
                return tuple(changed)
            if result is EndResult.BEHIND:
                await self.queries.catch_up(partition)
            else:  # others wrote the same keys: the values before this write are unknown
                exclusive = False
        raise SketchUnavailable("Queries are registered faster than this replica can fetch them.")

    def _report(self, partition: Partition, affected: AffectedQueries) -> None:
        if affected.numbers:
            registered = self.queries.count(partition)
            self._on_results_changed(ResultsChanged(partition, len(affected.numbers), registered))


def _by_partition(database: str, keys: Iterable[CacheKey]) -> dict[Partition, list[str]]:
    keys_by_partition: dict[Partition, list[str]] = {}
    for key in keys:
        keys_by_partition.setdefault(_partition(database, key.class_name), []).append(str(key))
    return keys_by_partition


def _token(partitions: Iterable[Partition]) -> WriteToken:
    return WriteToken(urandom(16).hex(), tuple(partition.class_name for partition in partitions))


def _effects_on(
    partition: Partition, effects: Effects | None, *, exclusive: bool
) -> Sequence[Effect] | None:
    """Return the effects of a write on a class; None: unknown."""
    return None if effects is None else effects(exclusive).get(partition.class_name, ())


async def _purge(purge_first: PurgeFirst, keys: Mapping[Partition, Sequence[str]]) -> None:
    await asyncio.gather(*(purge_first(*item) for item in keys.items() if item[1]))


@contextmanager
def translating_sketch_errors() -> Iterator[None]:
    """Raise `Unavailable` if the sketch does not answer in the block."""
    try:
        yield
    except SketchUnavailable as error:
        raise Unavailable(str(error), system=_SYSTEM) from error


async def _gather(calls: Sequence[Awaitable[_T]]) -> list[_T]:
    try:
        if len(calls) == 1:
            return [await calls[0]]
        return await asyncio.gather(*calls)
    except SketchUnavailable as error:
        raise Unavailable("The cache sketch does not answer.", system=_SYSTEM) from error
