"""Query results in the sketch's Redis: the steps that concern them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from sketch.filter.bloom import FilterShape
from sketch.filter.hashing import positions
from sketch.protocol.bounds import checked, checked_keys
from sketch.protocol.port import Changes, Ended, Grant, Part, Registered
from sketch.redis.steps import Answer, Steps

__all__ = ["ENDS", "RedisQueries"]

_AT_ONCE: Final = 500
ENDS: Final = {
    0: Ended.DONE,
    1: Ended.DONE,
    2: Ended.BEHIND,
    3: Ended.CONTESTED,
    4: Ended.WANTED,
}
"""What the end of a write is answered."""


class RedisQueries:
    """See `sketch.protocol.port.ServerSketch`.

    Args:
        steps: Takes steps.
        shape: Of the filters.
    """

    def __init__(self, steps: Steps, shape: FilterShape) -> None:
        self._steps = steps
        self._shape = shape
        self._places = Struct(f">{shape.hashes}I")

    async def close(self, part: Part, token: str, pairs: Sequence[Any], changes: Changes) -> Ended:
        """End a write, after its changes are noted; all of it in one round trip."""
        words = (token, changes.mark, int(changes.alone), int(changes.insists), *pairs)
        closing = self._steps.take(part, "close", words, len(pairs) // 2)
        if not changes.queries:  # a task of its own takes as long as all the rest here
            return ENDS[(await closing).value]
        *_, answer = await asyncio.gather(*self._changed(part, changes.queries), closing)
        return ENDS[answer.value]

    async def changed(self, part: Part, queries: Sequence[str]) -> None:
        """See the port."""
        await asyncio.gather(*self._changed(part, queries))

    async def report(self, part: Part, key: str, ttl_us: int, schema: str) -> Grant:
        """Register a query whose result is about to be read."""
        answer = await self._steps.take(part, "query", (schema, ttl_us, checked(key)))
        return Grant(answer.now_us, max(answer.value, 0), adopted=answer.value >= 0)

    async def registered(self, part: Part, since: int) -> Registered:
        """See the port."""
        mark, count, whole, found = (await self._steps.take(part, "registered", (since,))).value
        return Registered(mark, count, _numbers(found), bool(whole))

    def _changed(self, part: Part, queries: Sequence[str]) -> list[Coroutine[Any, Any, Answer]]:
        slices = (queries[at : at + _AT_ONCE] for at in range(0, len(queries), _AT_ONCE))
        return [self._steps.take(part, "changed", self._placed(s), len(s)) for s in slices]

    def _placed(self, keys: Sequence[str]) -> list[Any]:
        words: list[Any] = []
        for key in checked_keys(keys):
            words += (key, self._places.pack(*positions(key, self._shape)))
        return words


def _numbers(found: Sequence[bytes]) -> Mapping[str, int]:
    scores = map(int, map(float, found[1::2]))
    return dict(zip((key.decode() for key in found[::2]), scores, strict=True))
