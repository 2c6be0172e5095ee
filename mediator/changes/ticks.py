"""The age of a tick of the feeds, by this process's monotonic clock.

The coordination Redis counts ticks (`Feed.tick`); the count only orders events. Each process
derives a tick's age from when it read the count, so times of two machines are never compared.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from mediator.base.clock import Clock

__all__ = ["TickTimes"]

_MAX_READINGS: Final = 2_048
"""Readings kept; beyond this, every second one of the older half is dropped."""


class TickTimes:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ticks: list[int] = []
        self._times: list[float] = []

    def note(self, tick: int, requested_at: float) -> None:
        """Record the latest tick at our monotonic time `requested_at` (seconds)."""
        if self._ticks and tick < self._ticks[-1]:  # the counter was lost
            self._ticks, self._times = [], []
        if self._ticks and tick == self._ticks[-1]:
            self._times[-1] = requested_at
            return
        self._ticks.append(tick)
        self._times.append(requested_at)
        if len(self._ticks) > _MAX_READINGS:
            self._thin_out()

    def age_s(self, tick: int) -> float | None:
        """Return the maximum age of a tick in seconds; None: unknown."""
        # The tick was issued after every reading of a lower tick.
        index = bisect_left(self._ticks, tick) - 1
        return None if index < 0 else self._clock.monotonic() - self._times[index]

    def _thin_out(self) -> None:
        old = _MAX_READINGS // 2
        self._ticks[:old] = self._ticks[:old:2]
        self._times[:old] = self._times[:old:2]
