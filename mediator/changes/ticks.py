"""How long ago a tick of the feeds was, by this process's own monotonic clock.

The coordination Redis counts (`Feed.tick`); the count only orders events. How long ago a tick was,
each process finds by when it read the count itself: no times of two machines are ever compared.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from mediator.base.clock import Clock

__all__ = ["TickTimes"]

_MAX: Final = 2_048
"""Readings kept; beyond, every second one of the older half is dropped."""


class TickTimes:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ticks: list[int] = []
        self._times: list[float] = []

    def note(self, tick: int, requested_at: float) -> None:
        """Record a tick that was the latest at our monotonic time `requested_at` (seconds)."""
        if self._ticks and tick < self._ticks[-1]:  # the counter was lost
            self._ticks, self._times = [], []
        if self._ticks and tick == self._ticks[-1]:
            self._times[-1] = requested_at
            return
        self._ticks.append(tick)
        self._times.append(requested_at)
        if len(self._ticks) > _MAX:
            self._thin_out()

    def age_s(self, tick: int) -> float | None:
        """Return how long ago a tick was given, at most, in seconds; None: not known."""
        # The tick was given after every reading of a lower one.
        before = bisect_left(self._ticks, tick) - 1
        return None if before < 0 else self._clock.monotonic() - self._times[before]

    def _thin_out(self) -> None:
        old = _MAX // 2
        self._ticks[:old] = self._ticks[:old:2]
        self._times[:old] = self._times[:old:2]
