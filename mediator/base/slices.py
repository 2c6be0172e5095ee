"""Long work on the event loop in slices, between which other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from mediator.base.clock import Clock

__all__ = ["Slices"]

_SLICE_S: Final = 0.01
"""Seconds after which other tasks run: the same process renews leases."""


def _unlimited() -> float:
    return inf


class Slices:
    """Yields to the event loop every few milliseconds, in a loop over many items.

    Args:
        clock: Measures the slices.
        slice_s: Seconds after which other tasks run.
        remaining_s: Returns the remaining seconds for all of the work; raises if none remain.
    """

    def __init__(
        self,
        clock: Clock,
        slice_s: float = _SLICE_S,
        remaining_s: Callable[[], float] = _unlimited,
    ) -> None:
        self._monotonic = clock.monotonic
        self._slice_s, self._remaining_s = slice_s, remaining_s
        self._until_s = self._end_s()

    def is_due(self) -> bool:
        """Whether `checkpoint` would yield; a hot loop awaits it only then."""
        return self._monotonic() >= self._until_s

    async def checkpoint(self) -> None:
        """Yield if it is due; raises as `remaining_s` if the time of the work is over."""
        if self.is_due():
            self._remaining_s()
            await asyncio.sleep(0)
            self._until_s = self._end_s()

    def _end_s(self) -> float:
        return self._monotonic() + min(self._slice_s, self._remaining_s())
