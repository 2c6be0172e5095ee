"""The client's clock, and its bounds on the sketch's clock, which date responses."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from sketch.protocol.wire import LATE_S

__all__ = ["MIN_US_PER_S", "Clock", "ElapsedTime", "SketchClock", "StrictlyIncreasing"]

Clock = Callable[[], float]
"""Returns seconds since some moment; never goes back."""


_DRIFT = 500e-6
"""The maximum drift of two clocks in a second, if neither is set."""

_MAX_US_PER_S: Final = 1_000_000 * (1 + _DRIFT)
"""The most microseconds that the sketch's clock advances in a second of the client's."""

MIN_US_PER_S: Final = 1_000_000 * (1 - _DRIFT)
"""The fewest, unless that clock is set back."""


class ElapsedTime:
    """Seconds since a moment in the past, the machine's sleep included.

    The monotonic clocks of most systems stop while the machine sleeps, and a filter would come out
    of an hour's sleep as young as it went in. A gain of the wall clock on the monotonic one
    therefore counts as elapsed time; a loss does not.
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
    """A clock that never returns the same time twice, so that later events have later times.

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
    """Upper bounds on the sketch's clock, in terms of the client's.

    Each filter has a time that the sketch's clock reached after the client requested it. From then
    on that clock advances no further than the client's own, which bounds it from above. The highest
    of these bounds dates responses. If the sketch's clock is set forward, earlier responses look
    older than they are. If it is set back, it stays below the earlier bounds, which are kept while
    a cache may hold an earlier response: for `max_age_s` and `LATE_S`.
    """

    def __init__(self, max_age_s: float) -> None:
        self._retention_s = max_age_s + LATE_S
        self._bounds = deque[_Bound]()  # the highest first
        self._watched_since = math.inf
        self._last_noted = -math.inf

    def reset(self) -> None:
        """Treat the clock as a new one, which must be watched before its dates count."""
        self._bounds.clear()

    def note(self, requested_at: float, time_us: int) -> None:
        bounds, new = self._bounds, _Bound(requested_at, time_us - requested_at * _MAX_US_PER_S)
        # The clock may have been set unnoticed during a gap: the watch restarts here.
        if not bounds or requested_at - self._last_noted > self._retention_s:
            bounds.clear()
            self._watched_since = requested_at
        # A monotonic queue: a bound that a later one reaches is never the highest again.
        while bounds and bounds[-1].ahead_us <= new.ahead_us:
            bounds.pop()
        bounds.append(new)
        while requested_at - bounds[0].since > 2 * self._retention_s:
            bounds.popleft()
        self._last_noted = requested_at

    def is_known(self, now: float) -> bool:
        """Whether it was watched, without a gap, for longer than a response can be cached."""
        if not self._bounds or now - self._last_noted > self._retention_s:
            return False
        return now - self._watched_since >= self._retention_s

    def latest_us(self, now: float) -> float:
        """Return the latest time that it can show (microseconds); infinity: unknown."""
        bounds = self._bounds
        return bounds[0].ahead_us + now * _MAX_US_PER_S if bounds else math.inf

    def not_before(self, time_us: int, now: float) -> float:
        """Return the client's time before which it cannot have shown a time; -infinity: unknown."""
        ahead_us = self.latest_us(now) - time_us
        return now - ahead_us / 1_000_000 if ahead_us >= 0 and self.is_known(now) else -math.inf
