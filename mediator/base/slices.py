"""Long work on the event loop in slices, between which others run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from mediator.base.clock import Clock

__all__ = ["Slices"]

_SLICE_S: Final = 0.01
"""Seconds after which others run: the same process renews leases."""


def _no_end() -> float:
    return inf


class Slices:
    """Yields to the event loop every few milliseconds, in a loop over many things.

    Args:
        clock: Measures the slices.
        slice_s: Seconds after which others run.
        left_s: Returns how many seconds are left for all of the work; raises if there are none.
    """

    def __init__(
        self,
        clock: Clock,
        slice_s: float = _SLICE_S,
        left_s: Callable[[], float] = _no_end,
    ) -> None:
        self._monotonic = clock.monotonic
        self._slice_s, self._left_s = slice_s, left_s
        self._until_s = self._end_s()

    def is_due(self) -> bool:
        """Whether `checkpoint` would yield; a hot loop awaits it only then."""
        return self._monotonic() >= self._until_s

    async def checkpoint(self) -> None:
        """Yield if it is due; raises what `left_s` does if the time of the work is over."""
        if self.is_due():
            self._left_s()
            await asyncio.sleep(0)
            self._until_s = self._end_s()

    def _end_s(self) -> float:
        return self._monotonic() + min(self._slice_s, self._left_s())
