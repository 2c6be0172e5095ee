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
from app.coherence.query_registry import Found, RegisteredQueries, ResultsChanged, TellResults
from mediator.base.clock import Clock
from mediator.base.errors import Unavailable
from mediator.model.effects import Effect
from mediator.model.guard import Effects
from mediator.query.invalidation.match_budget import MatchBudget
from sketch.protocol.port import Begun, Changes, Ended, Part, ServerSketch, SketchUnavailable
from sketch.ttl import TtlEstimator

__all__ = ["SYSTEM", "PurgeFirst", "SketchGuard", "by_part", "parts_of"]

_T = TypeVar("_T")

SYSTEM: Final = "the cache sketch"
_SEPARATOR: Final = ":"
_DONE: Final = (Ended.DONE, Ended.WANTED)
_PATIENCE: Final = 2
_TRIES: Final = 10
"""How often a write looks for the results it may have changed; from the second time on that it was
behind it insists, and is up to date the next time."""


_part: Final = lru_cache(maxsize=4096)(Part)
"""The same part again: to make one takes as long as half of all the rest of a write that joins."""


def _part_of(database: str, key: str) -> Part:
    return _part(database, key.partition("/")[0])


def by_part(database: str, keys: Collection[str]) -> dict[Part, list[str]]:
    """Sort keys by the parts of the sketch that they belong to."""
    parts: dict[Part, list[str]] = {}
    for key in keys:
        parts.setdefault(_part_of(database, key), []).append(key)
    return parts


def parts_of(database: str, token: str) -> list[Part]:
    """Return the parts that a write touches: its token names their classes."""
    return [Part(database, name) for name in token.split(_SEPARATOR)[1:]]


PurgeFirst: TypeAlias = Callable[[Part, Sequence[str]], Awaitable[object]]


class SketchGuard:
    """Implements `mediator.model.guard.WriteGuard`.

    Args:
        sketch: The server's sketch.
        estimator: Learns how often keys are written.
        results: The registered queries.
        layouts: Has the sketch know what keys stand for.
        tell: Told of results that may have changed.
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
        tell: TellResults,
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
        self._tell = tell
        self._clock = clock

    async def begin(self, database: str, keys: Sequence[str]) -> str:
        """Mark keys as being written; raises `Unavailable`: the write must not be done."""
        if len(keys) == 1:
            return await self._begin_one(_part_of(database, keys[0]), keys[0])
        parts = by_part(database, keys)
        token = _token(parts)
        await _done([self._begin(part, of, token) for part, of in parts.items()])
        return token

    async def _begin_one(self, part: Part, key: str) -> str:
        """Mark a key, unless a mark of it lingers; return the token of either."""
        if (route := self._layouts.adopted(part)) is not None:
            lingering = self._lingering.join(part, key, route)
            if lingering is not None:
                return lingering
        [token] = await _done([self._begin_anew(part, key)])
        return token

    async def _begin_anew(self, part: Part, key: str) -> str:
        """Mark a key, and let the mark linger if it may."""
        route = await self._layouts.adopt(part)
        token, asked_s = _token([part]), self._clock.monotonic()
        if (await self._begin(part, [key], token)).lingers:
            self._lingering.keep(part, key, token, route, asked_s)
        return token

    async def _begin(self, part: Part, keys: Sequence[str], token: str) -> Begun:
        await self._layouts.adopt(part)
        begun = await self._sketch.begin(part, keys, token)
        if begun.mark != self._results.mark(part):
            await self._results.follow(part)
        return begun

    def depends_on(self, database: str, class_name: str, touched: Collection[str] | None) -> bool:
        """Whether results of queries may depend on what these fields were."""
        return self._results.depends_on(_part(database, class_name), touched)

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
        written = by_part(database, versions)
        now_s = self._clock.now()
        for part, keys in written.items():
            self._estimator.wrote(part, keys, now_s, created)
        if await self._lingering.leave(token):
            return
        parts = {part: written.get(part, ()) for part in parts_of(database, token)}
        changed = await _done(
            [
                self._end(part, token, {key: versions[key] for key in keys}, effects)
                for part, keys in parts.items()
            ]
        )
        if self._ended is not None:
            self._ended()
        if self._purge_first is not None:
            found = zip(parts.items(), changed, strict=True)
            await _purged(self._purge_first, {part: [*own, *more] for (part, own), more in found})

    async def unsure(self, database: str, class_name: str) -> None:
        """Take all results of a class for changed; raises `Unavailable`: there may be others."""
        part = Part(database, class_name)
        [found] = await _done([self._change_all(part)])
        if self._purge_first is not None:
            await _purged(self._purge_first, {part: found})

    async def relaid(self, database: str, class_name: str) -> None:
        """Have the sketch know a class as it is now; raises `Unavailable`: the next call will."""
        await _done([self._layouts.adopt(Part(database, class_name))])

    async def renew(self, database: str, class_name: str) -> None:
        """Begin a class's part anew; raises `Unavailable`: what was handed out still counts."""
        await _done([self._sketch.renew(Part(database, class_name))])

    async def _change_all(self, part: Part) -> Sequence[str]:
        # Whoever registers from here on reads what was written before.
        found = await self._results.take_back(part)
        self._note(part, found)
        return tuple(found.numbers)

    async def _end(
        self, part: Part, token: str, versions: Mapping[str, int], effects: Effects | None
    ) -> Sequence[str]:
        """End a write, once all results that it may have changed are known; returns their keys.

        Each look may find others; what an earlier one has found is stale as well.
        """
        changed: dict[str, None] = {}
        alone, work = effects is not None and self._results.depends_on(part, None), MatchBudget()
        for tried in range(_TRIES):
            did = partial(_effects_on, part, effects, alone=alone)
            found = self._results.changed(part, did, work)
            queries = tuple(found.numbers)
            changes = Changes(queries, found.mark, alone, insists=tried >= _PATIENCE)
            ended = await self._sketch.end(part, token, versions, changes)
            if queries:
                changed.update(dict.fromkeys(queries))
                self._results.forget(part, found)
                self._note(part, found)
            if ended is Ended.WANTED and len(versions) == 1:
                self._lingering.avoid(part, *versions)
            if ended in _DONE:
                return tuple(changed)
            if ended is Ended.BEHIND:
                await self._results.follow(part)
            else:
                alone = False
        raise SketchUnavailable("Queries are registered faster than they are learned.")

    def _note(self, part: Part, found: Found) -> None:
        if found.numbers:
            changed = len(found.numbers)
            self._tell(ResultsChanged(part, changed, self._results.count(part)))


def _token(parts: Iterable[Part]) -> str:
    return _SEPARATOR.join([urandom(16).hex(), *(part.class_name for part in parts)])


def _effects_on(part: Part, effects: Effects | None, *, alone: bool) -> Sequence[Effect] | None:
    """Return what a write did to a class; None: it may be anything."""
    return None if effects is None else effects(alone).get(part.class_name, ())


async def _purged(purge_first: PurgeFirst, keys: Mapping[Part, Sequence[str]]) -> None:
    """Have caches forget keys, before their write is acknowledged."""
    await asyncio.gather(*(purge_first(*each) for each in keys.items() if each[1]))


async def _done(calls: Sequence[Awaitable[_T]]) -> list[_T]:
    try:
        if len(calls) == 1:
            return [await calls[0]]
        return await asyncio.gather(*calls)
    except SketchUnavailable as error:
        raise Unavailable("The cache sketch does not answer.", system=SYSTEM) from error
