"""The client's clock: how much time has passed, counting what the machine slept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["Clock", "ElapsedTime", "StrictlyIncreasing"]

Clock = Callable[[], float]
"""Answers seconds since some moment; never goes back."""


class ElapsedTime:
    """Seconds since a moment in the past.

    The monotonic clocks of most systems stand still while the machine sleeps, and a filter would
    come out of an hour's sleep as young as it went in. What the wall clock gains on the monotonic
    one therefore counts as time passed; what it loses does not.

    Args:
        monotonic: A clock that never goes back.
        wall: A clock that goes on during sleep, and may be set.
    """

    def __init__(self, monotonic: Clock = time.monotonic, wall: Clock = time.time) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lead = -math.inf

    def __call__(self) -> float:
        """Return the time."""
        now = self._monotonic()
        self._lead = max(self._lead, self._wall() - now)
        return now + self._lead


class StrictlyIncreasing:
    """A clock that never answers the same time twice, so that what is later also reads later.

    Args:
        clock: The clock behind it; some tick only every 16 ms.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = -math.inf

    def __call__(self) -> float:
        """Return the time, later than ever before."""
        self._last = max(self._clock(), math.nextafter(self._last, math.inf))
        return self._last
