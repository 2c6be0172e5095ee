"""Coalescing of concurrent requests for the same work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mediator.base.errors import MediatorError

__all__ = ["Coalesced"]


class Coalesced:
    """Runs something for all callers, one run at a time.

    A caller gets a run that *started after his call*, since the present one may have read too
    early. All calls during a run share the next one, with its failure, so each waits for two runs
    at most. A run whose caller is cancelled does not count; the next caller starts another.

    Args:
        run: The work.
    """

    def __init__(self, run: Callable[[], Awaitable[object]]) -> None:
        self._run = run
        self._lock = asyncio.Lock()
        self._started = 0
        self._ended = 0
        self._failure: MediatorError | None = None

    async def __call__(self) -> None:
        """Wait for a run that starts from now on; raises what it raises."""
        started_before = self._started
        async with self._lock:
            if self._ended <= started_before:
                await self._run_once()
            if self._failure is not None:
                raise self._failure.with_traceback(None)

    async def _run_once(self) -> None:
        self._started += 1
        self._failure = None
        try:
            await self._run()
        except MediatorError as error:
            self._failure = error
        self._ended = self._started
