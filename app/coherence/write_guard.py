"""The sketch as the mediator's guard: told before and after every write.

See docs/protocol.md, "Writing".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from os import urandom
from typing import Final, TypeAlias, TypeVar

from app.coherence.cached_leases import Lingering
from app.coherence.layouts import Layouts
from app.coherence.query_registry import Found, OnResultsChanged, RegisteredQueries, ResultsChanged
from mediator.base.clock import Clock
from mediator.base.errors import Unavailable
from mediator.model.effects import Effect
from mediator.model.guard import Effects
from mediator.query.invalidation.match_budget import MatchBudget
from sketch.protocol.port import (
    BeginResult,
    EndResult,
    Partition,
    ResultChanges,
    ServerSketch,
    SketchUnavailable,
)
from sketch.ttl import TtlEstimator

__all__ = ["SYSTEM", "PurgeFirst", "SketchGuard", "by_partition", "partitions_of"]

_T = TypeVar("_T")

SYSTEM: Final = "the cache sketch"
_SEPARATOR: Final = ":"
_DONE: Final = (EndResult.DONE, EndResult.CONTENDED)
_PATIENCE: Final = 2
_TRIES: Final = 10
"""How often a write looks for the results it may have changed; from the second time on that it was
behind it insists, and is up to date the next time."""


_partition: Final = lru_cache(maxsize=4096)(Partition)
"""Cached: making one takes half as long as all the rest of a write under a cached lease."""


def _partition_of(database: str, key: str) -> Partition:
    return _partition(database, key.partition("/")[0])


def by_partition(database: str, keys: Collection[str]) -> dict[Partition, list[str]]:
    """Sort keys by the partitions of the sketch that they belong to."""
    partitions: dict[Partition, list[str]] = {}
    for key in keys:
        partitions.setdefault(_partition_of(database, key), []).append(key)
    return partitions


def partitions_of(database: str, token: str) -> list[Partition]:
    """Return the partitions that a write touches: its token names their classes."""
    return [Partition(database, name) for name in token.split(_SEPARATOR)[1:]]


PurgeFirst: TypeAlias = Callable[[Partition, Sequence[str]], Awaitable[object]]


class SketchGuard:
    """Implements `mediator.model.guard.WriteGuard`.

    Args:
        sketch: The server's sketch.
        estimator: Learns how often keys are written.
        results: The registered queries.
        layouts: Has the sketch know what keys stand for.
        on_results_changed: Called with results that may have changed.
        purge_first: Has caches forget keys before their write is acknowledged, as far as that is
            possible in time; None: no write waits for that.
        clock: The time.
        ended: Called when writes have ended and purges may be due; None: nothing is purged.
        lingering: Lets marks linger; None: every write is ended before it is acknowledged.
    """

    wants_versions = True

    def __init__(
        self,
        sketch: ServerSketch,
        estimator: TtlEstimator,
        results: RegisteredQueries,
        layouts: Layouts,
        on_results_changed: OnResultsChanged,
        purge_first: PurgeFirst | None,
        clock: Clock,
        ended: Callable[[], None] | None = None,
        lingering: Lingering | None = None,
    ) -> None:
        self._lingering = lingering or Lingering(sketch, clock)
        self._ended = ended
        self._purge_first = purge_first
        self._sketch = sketch
        self._estimator = estimator
        self._results = results
        self._layouts = layouts
        self._on_results_changed = on_results_changed
        self._clock = clock

    async def begin(self, database: str, keys: Sequence[str]) -> str:
        """Mark keys as being written; raises `Unavailable`: the write must not be done."""
        if len(keys) == 1:
            return await self._begin_one(_partition_of(database, keys[0]), keys[0])
        partitions = by_partition(database, keys)
        token = _token(partitions)
        await _done([self._begin(partition, of, token) for partition, of in partitions.items()])
        return token

    async def _begin_one(self, partition: Partition, key: str) -> str:
        """Mark a key, unless a mark of it lingers; return the token of either."""
        if (route := self._layouts.adopted(partition)) is not None:
            lingering = self._lingering.join(partition, key, route)
            if lingering is not None:
                return lingering
        [token] = await _done([self._begin_anew(partition, key)])
        return token

    async def _begin_anew(self, partition: Partition, key: str) -> str:
        """Mark a key, and let the mark linger if it may."""
        route = await self._layouts.adopt(partition)
        token, asked_s = _token([partition]), self._clock.monotonic()
        if (await self._begin(partition, [key], token)).lease_cacheable:
            self._lingering.keep(partition, key, token, route, asked_s)
        return token

    async def _begin(self, partition: Partition, keys: Sequence[str], token: str) -> BeginResult:
        await self._layouts.adopt(partition)
        begun = await self._sketch.begin(partition, keys, token)
        if begun.sequence != self._results.sequence(partition):
            await self._results.follow(partition)
        return begun

    def depends_on(self, database: str, class_name: str, touched: Collection[str] | None) -> bool:
        """Whether results of queries may depend on what these fields were."""
        return self._results.depends_on(_partition(database, class_name), touched)

    async def end(
        self,
        database: str,
        token: str,
        versions: Mapping[str, int],
        effects: Effects | None = None,
        created: Collection[str] = (),
    ) -> None:
        """Clear the marks; raises `Unavailable`: the write must not be acknowledged.

        A mark that lingers stays for now: there is nothing to purge, and no result to be found.
        """
        written = by_partition(database, versions)
        now_s = self._clock.now()
        for partition, keys in written.items():
            self._estimator.wrote(partition, keys, now_s, created)
        if await self._lingering.leave(token):
            return
        partitions = {
            partition: written.get(partition, ()) for partition in partitions_of(database, token)
        }
        changed = await _done(
            [
                self._end(partition, token, {key: versions[key] for key in keys}, effects)
                for partition, keys in partitions.items()
            ]
        )
        if self._ended is not None:
            self._ended()
        if self._purge_first is not None:
            found = zip(partitions.items(), changed, strict=True)
            await _purged(
                self._purge_first, {partition: [*own, *more] for (partition, own), more in found}
            )

    async def unsure(self, database: str, class_name: str) -> None:
        """Take all results of a class for changed; raises `Unavailable`: there may be others."""
        partition = Partition(database, class_name)
        [found] = await _done([self._change_all(partition)])
        if self._purge_first is not None:
            await _purged(self._purge_first, {partition: found})

    async def relaid(self, database: str, class_name: str) -> None:
        """Have the sketch know a class as it is now; raises `Unavailable`: the next call will."""
        await _done([self._layouts.adopt(Partition(database, class_name))])

    async def renew(self, database: str, class_name: str) -> None:
        """Take every copy of a class for stale; raises `Unavailable`."""
        await _done([self._sketch.invalidate(Partition(database, class_name))])

    async def _change_all(self, partition: Partition) -> Sequence[str]:
        # Whoever registers from here on reads what was written before.
        found = await self._results.take_back(partition)
        self._note(partition, found)
        return tuple(found.numbers)

    async def _end(
        self, partition: Partition, token: str, versions: Mapping[str, int], effects: Effects | None
    ) -> Sequence[str]:
        """End a write, once all results that it may have changed are known; returns their keys.

        Each look may find others; what an earlier one has found is stale as well.
        """
        changed: dict[str, None] = {}
        exclusive, work = (
            effects is not None and self._results.depends_on(partition, None),
            MatchBudget(),
        )
        for tried in range(_TRIES):
            did = partial(_effects_on, partition, effects, exclusive=exclusive)
            found = self._results.changed(partition, did, work)
            queries = tuple(found.numbers)
            changes = ResultChanges(
                queries, found.sequence, exclusive, pauses_registration=tried >= _PATIENCE
            )
            ended = await self._sketch.end(partition, token, versions, changes)
            if queries:
                changed.update(dict.fromkeys(queries))
                self._results.forget(partition, found)
                self._note(partition, found)
            if ended is EndResult.CONTENDED and len(versions) == 1:
                self._lingering.avoid(partition, *versions)
            if ended in _DONE:
                return tuple(changed)
            if ended is EndResult.BEHIND:
                await self._results.follow(partition)
            else:
                exclusive = False
        raise SketchUnavailable("Queries are registered faster than they are learned.")

    def _note(self, partition: Partition, found: Found) -> None:
        if found.numbers:
            changed = len(found.numbers)
            self._on_results_changed(
                ResultsChanged(partition, changed, self._results.count(partition))
            )


def _token(partitions: Iterable[Partition]) -> str:
    return _SEPARATOR.join([urandom(16).hex(), *(partition.class_name for partition in partitions)])


def _effects_on(
    partition: Partition, effects: Effects | None, *, exclusive: bool
) -> Sequence[Effect] | None:
    """Return what a write did to a class; None: it may be anything."""
    return None if effects is None else effects(exclusive).get(partition.class_name, ())


async def _purged(purge_first: PurgeFirst, keys: Mapping[Partition, Sequence[str]]) -> None:
    """Have caches forget keys, before their write is acknowledged."""
    await asyncio.gather(*(purge_first(*each) for each in keys.items() if each[1]))


async def _done(calls: Sequence[Awaitable[_T]]) -> list[_T]:
    try:
        if len(calls) == 1:
            return [await calls[0]]
        return await asyncio.gather(*calls)
    except SketchUnavailable as error:
        raise Unavailable("The cache sketch does not answer.", system=SYSTEM) from error
