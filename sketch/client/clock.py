"""The client's clock, and what it knows of the sketch's, by which answers are dated."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from sketch.protocol.wire import LATE_S

__all__ = ["LEAST_US", "Clock", "ElapsedTime", "SketchClock", "StrictlyIncreasing"]

Clock = Callable[[], float]
"""Returns seconds since some moment; never goes back."""


_DRIFT = 500e-6
"""The most that two clocks differ by in a second, if neither is set."""

_US: Final = 1_000_000 * (1 + _DRIFT)
"""The most microseconds that the sketch's clock advances in a second of the client's."""

LEAST_US: Final = 1_000_000 * (1 - _DRIFT)
"""The fewest, unless it is set back."""


class ElapsedTime:
    """Seconds since a moment in the past, the machine's sleep included.

    The monotonic clocks of most systems stop while the machine sleeps, and a filter would come out
    of an hour's sleep as young as it went in. What the wall clock gains on the monotonic one
    therefore counts as time passed; what it loses does not.
    """

    def __init__(self, monotonic: Clock = time.monotonic, wall: Clock = time.time) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lead = -math.inf

    def __call__(self) -> float:
        now = self._monotonic()
        self._lead = max(self._lead, self._wall() - now)
        return now + self._lead


class StrictlyIncreasing:
    """A clock that never returns the same time twice, so that what is later also reads later.

    Some clocks tick only every 16 ms.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = -math.inf

    def __call__(self) -> float:
        self._last = max(self._clock(), math.nextafter(self._last, math.inf))
        return self._last


class _Bound(NamedTuple):
    since: float
    ahead_us: float


class SketchClock:
    """Bounds of the sketch's clock, by the client's.

    Each filter has a time that the sketch's clock has shown since the client requested it. From
    then on that clock shows no more than has passed by the client's own: a bound that it stays
    below. Dates of answers are judged by the highest of these bounds. If the clock is set forward,
    what was dated before looks older than it is. If it is set back, it stays below the former
    bounds all the more; they are kept for as long as an answer of before may be in a cache, which
    is `kept_s` and what comes late.
    """

    def __init__(self, kept_s: float) -> None:
        self._about_s = kept_s + LATE_S
        self._highest_first = deque[_Bound]()
        self._watched_since = math.inf
        self._noted = -math.inf

    def begin_anew(self) -> None:
        """Treat the clock as another one, which has to be watched before dates count."""
        self._highest_first.clear()

    def note(self, requested_at: float, time_us: int) -> None:
        bounds, new = self._highest_first, _Bound(requested_at, time_us - requested_at * _US)
        # After a gap the clock may have been set unnoticed: it is watched again from here.
        if not bounds or requested_at - self._noted > self._about_s:
            bounds.clear()
            self._watched_since = requested_at
        # A monotonic queue: a bound that a later one reaches is never the highest again.
        while bounds and bounds[-1].ahead_us <= new.ahead_us:
            bounds.pop()
        bounds.append(new)
        while requested_at - bounds[0].since > 2 * self._about_s:
            bounds.popleft()
        self._noted = requested_at

    def is_known(self, now: float) -> bool:
        """Whether it was watched, without a gap, for longer than a response can be cached."""
        if not self._highest_first or now - self._noted > self._about_s:
            return False
        return now - self._watched_since >= self._about_s

    def latest_us(self, now: float) -> float:
        """Return the latest time that it can show (microseconds); infinity: unknown."""
        bounds = self._highest_first
        return bounds[0].ahead_us + now * _US if bounds else math.inf

    def not_before(self, time_us: int, now: float) -> float:
        """Return since when it can have shown a time, by the client's; minus infinity: unknown."""
        ahead_us = self.latest_us(now) - time_us
        return now - ahead_us / 1_000_000 if ahead_us >= 0 and self.is_known(now) else -math.inf
