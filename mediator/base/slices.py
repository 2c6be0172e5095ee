"""Long work on the event loop in slices, between which others run."""

from __future__ import annotations

import asyncio
from typing import Final

from mediator.base.clock import Clock

__all__ = ["Slices"]

_SLICE_S: Final = 0.01
"""Seconds after which others run: the same process renews leases."""


class Slices:
    """Yields to the event loop every few milliseconds."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._until_s = self._monotonic() + _SLICE_S

    async def checkpoint(self) -> None:
        if self._monotonic() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = self._monotonic() + _SLICE_S
