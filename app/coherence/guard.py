"""The sketch as the mediator's guard: told before and after every write (COHERENCE.md, Writing)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import uuid4

from mediator.clock import Clock
from mediator.errors import Unavailable
from sketch.port import Part, ServerSketch, SketchUnavailable
from sketch.ttl import TtlEstimator

__all__ = ["SYSTEM", "PurgeFirst", "SketchGuard", "by_part", "parts_of"]

SYSTEM: Final = "the cache sketch"
_SEPARATOR: Final = ":"


def by_part(database: str, keys: Collection[str]) -> dict[Part, list[str]]:
    """Sort keys by the parts of the sketch that they belong to."""
    parts: dict[Part, list[str]] = {}
    for key in keys:
        part = Part(database, key.partition("/")[0])
        parts.setdefault(part, []).append(key)
    return parts


def parts_of(database: str, token: str) -> list[Part]:
    """Return the parts that a write touches: its token names their classes."""
    return [Part(database, name) for name in token.split(_SEPARATOR)[1:]]


PurgeFirst: TypeAlias = Callable[[Part, Sequence[str]], Awaitable[object]]


class SketchGuard:
    """Implements `mediator.guard.WriteGuard`.

    Args:
        sketch: The server's sketch.
        estimator: Learns how often keys are written.
        purge_first: Has caches forget keys before their write is acknowledged, as far as that is
            possible in time; None: no write waits for that.
        clock: The time.
        ended: Called when writes have ended and purges may be due; None: nothing is purged.
    """

    wants_versions = True

    def __init__(
        self,
        sketch: ServerSketch,
        estimator: TtlEstimator,
        purge_first: PurgeFirst | None,
        clock: Clock,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self._ended = ended
        self._purge_first = purge_first
        self._sketch = sketch
        self._estimator = estimator
        self._clock = clock

    async def begin(self, database: str, keys: Sequence[str]) -> str:
        """Mark keys as being written; raises `Unavailable`: the write must not be done."""
        parts = by_part(database, keys)
        token = _SEPARATOR.join([uuid4().hex, *(part.class_name for part in parts)])
        await _done([self._sketch.begin(part, of, token) for part, of in parts.items()])
        return token

    async def end(self, database: str, token: str, versions: Mapping[str, int]) -> None:
        """Clear the marks; raises `Unavailable`: the write must not be acknowledged."""
        written = by_part(database, versions)
        now_s = self._clock.now()
        for part, keys in written.items():
            self._estimator.wrote(part, keys, now_s)
        await _done(
            [
                self._sketch.end(part, token, {key: versions[key] for key in written.get(part, ())})
                for part in parts_of(database, token)
            ]
        )
        if self._ended is not None:
            self._ended()
        if self._purge_first is not None:
            await asyncio.gather(*(self._purge_first(*each) for each in written.items()))


async def _done(calls: Sequence[Awaitable[object]]) -> None:
    try:
        if len(calls) == 1:
            await calls[0]
        else:
            await asyncio.gather(*calls)
    except SketchUnavailable as error:
        raise Unavailable("The cache sketch does not answer.", system=SYSTEM) from error
