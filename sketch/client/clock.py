"""The client's clock: how much time has passed, counting what the machine slept."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from sketch.protocol.wire import LATE_S

__all__ = ["Clock", "ElapsedTime", "SketchClock", "StrictlyIncreasing"]

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


_DRIFT = 500e-6
"""What two clocks differ by in a second at most, where nobody sets them."""


_US: Final = 1_000_000 * (1 + _DRIFT)
"""Microseconds that the sketch's clock goes on by in a second of the client's at most."""


class _Line(NamedTuple):
    born: float
    ahead_us: float


class SketchClock:
    """Bounds of the sketch's clock, by the client's.

    Args:
        kept_s: For how long caches keep an answer that tells its time (seconds).
    """

    def __init__(self, kept_s: float) -> None:
        self._about_s = kept_s + LATE_S
        self._highest_first = deque[_Line]()
        self._watched_since = math.inf
        self._noted = -math.inf

    def begin_anew(self) -> None:
        """Take it for another clock: it has to be watched for some time first."""
        self._highest_first.clear()

    def note(self, born: float, time_us: int) -> None:
        """Note what a filter tells.

        Args:
            born: When it was asked for, by the client's clock.
            time_us: What the sketch's clock showed then, or later (microseconds).
        """
        lines, new = self._highest_first, _Line(born, time_us - born * _US)
        if not lines or born - self._noted > self._about_s:
            lines.clear()
            self._watched_since = born
        while lines and lines[-1].ahead_us <= new.ahead_us:
            lines.pop()
        lines.append(new)
        while born - lines[0].born > 2 * self._about_s:
            lines.popleft()
        self._noted = born

    def tells(self, now: float) -> bool:
        """Whether it was watched, without a gap, for longer than anything of before is about."""
        if not self._highest_first or now - self._noted > self._about_s:
            return False
        return now - self._watched_since >= self._about_s

    def latest_us(self, now: float) -> float:
        """Return the latest time that it can show; infinity if nothing tells it (microseconds)."""
        lines = self._highest_first
        return lines[0].ahead_us + now * _US if lines else math.inf

    def not_before(self, time_us: int, now: float) -> float:
        """Return a moment, by the client's clock, before which it cannot have shown a time.

        Minus infinity: nobody knows.
        """
        ahead_us = self.latest_us(now) - time_us
        return now - ahead_us / 1_000_000 if ahead_us >= 0 and self.tells(now) else -math.inf
