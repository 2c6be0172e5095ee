"""Query results in the sketch's Redis: the steps that concern them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from sketch.filter.bloom import FilterShape
from sketch.filter.hashing import positions
from sketch.protocol.bounds import checked, checked_keys
from sketch.protocol.port import EndResult, Grant, Partition, QueryRegistrations, ResultChanges
from sketch.redis.steps import Answer, Steps

__all__ = ["ENDS", "RedisQueries"]

_AT_ONCE: Final = 500
ENDS: Final = {
    0: EndResult.DONE,
    1: EndResult.DONE,
    2: EndResult.BEHIND,
    3: EndResult.CONCURRENT,
    4: EndResult.CONTENDED,
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

    async def close(
        self, partition: Partition, token: str, pairs: Sequence[Any], changes: ResultChanges
    ) -> EndResult:
        """End a write, after its changes are noted; all of it in one round trip."""
        words = (
            token,
            changes.sequence,
            int(changes.exclusive),
            int(changes.pauses_registration),
            *pairs,
        )
        closing = self._steps.take(partition, "close", words, len(pairs) // 2)
        if not changes.queries:  # a task of its own takes as long as all the rest here
            return ENDS[(await closing).value]
        *_, answer = await asyncio.gather(*self._changed(partition, changes.queries), closing)
        return ENDS[answer.value]

    async def invalidate_results(self, partition: Partition, queries: Sequence[str]) -> None:
        """See the port."""
        await asyncio.gather(*self._changed(partition, queries))

    async def report(self, partition: Partition, key: str, ttl_us: int, schema: str) -> Grant:
        """Register a query whose result is about to be read."""
        answer = await self._steps.take(partition, "query", (schema, ttl_us, checked(key)))
        return Grant(answer.now_us, max(answer.value, 0), adopted=answer.value >= 0)

    async def registrations(self, partition: Partition, since: int) -> QueryRegistrations:
        """See the port."""
        sequence, count, complete, found = (
            await self._steps.take(partition, "registered", (since,))
        ).value
        return QueryRegistrations(sequence, count, _numbers(found), bool(complete))

    def _changed(
        self, partition: Partition, queries: Sequence[str]
    ) -> list[Coroutine[Any, Any, Answer]]:
        slices = (queries[at : at + _AT_ONCE] for at in range(0, len(queries), _AT_ONCE))
        return [self._steps.take(partition, "changed", self._placed(s), len(s)) for s in slices]

    def _placed(self, keys: Sequence[str]) -> list[Any]:
        words: list[Any] = []
        for key in checked_keys(keys):
            words += (key, self._places.pack(*positions(key, self._shape)))
        return words


def _numbers(found: Sequence[bytes]) -> Mapping[str, int]:
    scores = map(int, map(float, found[1::2]))
    return dict(zip((key.decode() for key in found[::2]), scores, strict=True))
