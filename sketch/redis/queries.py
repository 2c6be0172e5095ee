"""Query results in the sketch's Redis: the steps that concern them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from sketch.filter.hashing import positions
from sketch.filter.shape import FilterShape
from sketch.protocol.bounds import checked, checked_keys
from sketch.protocol.port import EndResult, Grant, Partition, QueryRegistrations, ResultChanges
from sketch.redis.steps import StepCoalescer, StepResult

__all__ = ["ENDS", "RedisQueries"]

_AT_ONCE: Final = 500
ENDS: Final = {
    0: EndResult.DONE,
    1: EndResult.DONE,
    2: EndResult.BEHIND,
    3: EndResult.CONCURRENT,
    4: EndResult.CONTENDED,
}
"""The results of the steps that end a write."""


class RedisQueries:
    """See `sketch.protocol.port.ServerSketch`."""

    def __init__(self, steps: StepCoalescer, shape: FilterShape) -> None:
        self._steps = steps
        self._shape = shape
        self._positions = Struct(f">{shape.hashes}I")

    async def close(
        self, partition: Partition, token: str, pairs: Sequence[Any], changes: ResultChanges
    ) -> EndResult:
        """End a write, after its changes have been recorded; all of it in one round trip."""
        arguments = (
            token,
            changes.sequence,
            int(changes.exclusive),
            int(changes.pauses_registration),
            *pairs,
        )
        closing = self._steps.take(partition, "close", arguments, len(pairs) // 2)
        if not changes.queries:  # a task of its own takes as long as all the rest here
            return ENDS[(await closing).value]
        invalidations = self._invalidations(partition, changes.queries)
        *_, result = await asyncio.gather(*invalidations, closing)
        return ENDS[result.value]

    async def invalidate_results(self, partition: Partition, queries: Sequence[str]) -> None:
        """See the port."""
        await asyncio.gather(*self._invalidations(partition, queries))

    async def report(self, partition: Partition, key: str, ttl_us: int, schema: str) -> Grant:
        """Register a query whose result is about to be read."""
        arguments = (schema, ttl_us, checked(key))
        now_us, granted_us = await self._steps.take(partition, "report_query", arguments)
        return Grant(now_us, max(granted_us, 0), adopted=granted_us >= 0)

    async def registrations(self, partition: Partition, since: int) -> QueryRegistrations:
        """See the port."""
        result = await self._steps.take(partition, "registrations", (since,))
        sequence, count, complete, newer = result.value
        return QueryRegistrations(sequence, count, _numbers(newer), bool(complete))

    def _invalidations(
        self, partition: Partition, queries: Sequence[str]
    ) -> list[Coroutine[Any, Any, StepResult]]:
        slices = (queries[at : at + _AT_ONCE] for at in range(0, len(queries), _AT_ONCE))
        return [
            self._steps.take(partition, "invalidate_results", self._with_positions(s), len(s))
            for s in slices
        ]

    def _with_positions(self, keys: Sequence[str]) -> list[Any]:
        arguments: list[Any] = []
        for key in checked_keys(keys):
            arguments += (key, self._positions.pack(*positions(key, self._shape)))
        return arguments


def _numbers(pairs: Sequence[bytes]) -> Mapping[str, int]:
    scores = map(int, map(float, pairs[1::2]))
    return dict(zip((key.decode() for key in pairs[::2]), scores, strict=True))
