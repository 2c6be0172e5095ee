"""Doing once what many ask for at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mediator.base.errors import MediatorError

__all__ = ["Coalesced"]


class Coalesced:
    """Runs something for whoever asks, one run at a time.

    Who asks is answered by a run that *began after he asked*, for he must be told what was so by
    then: the run under way may have looked too early. All who ask during a run share the next one,
    with its failure, so each waits for two runs at most, however many they are. A run whose asker
    is cancelled counts for nobody; the next in turn begins another.

    Args:
        run: What is to be done.
    """

    def __init__(self, run: Callable[[], Awaitable[object]]) -> None:
        self._run = run
        self._turn = asyncio.Lock()
        self._begun = 0
        self._ended = 0
        self._failure: MediatorError | None = None

    async def __call__(self) -> None:
        """Wait for a run that begins from now on; raises what it raises."""
        asked = self._begun
        async with self._turn:
            if self._ended <= asked:
                await self._again()
            if self._failure is not None:
                raise self._failure.with_traceback(None)

    async def _again(self) -> None:
        self._begun += 1
        self._failure = None
        try:
            await self._run()
        except MediatorError as error:
            self._failure = error
        self._ended = self._begun
