"""What a client knows of the sketch's clock, by which answers tell when they were true.

Each filter tells a time that the sketch's clock has shown since the client asked for it. From then
on that clock shows no more than has passed by the client's own: a line that it stays below. What
answers tell is judged by the highest of these lines. If the clock is set forward, what was told
before looks older than it is. If it is set back, it stays below the former lines all the more, and
they are kept for as long as anything may be about that was told before.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

from sketch.protocol.wire import LATE_S

__all__ = ["SketchClock"]

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
