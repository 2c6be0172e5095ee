"""How fast something arrives at a whole class."""

from __future__ import annotations

from typing import Final

__all__ = ["ArrivalRate"]

_KEEP: Final = 0.999
_FIRST_S: Final = 1.0


class ArrivalRate:
    """A weighted average of the times between arrivals; times are in seconds.

    Args:
        now_s: The time.
        assumed: How many arrivals are assumed, beside those that are counted.
    """

    __slots__ = ("_assumed", "_count", "_last_s", "_span_s")

    def __init__(self, now_s: float, assumed: float) -> None:
        self._count = self._span_s = 0.0
        self._last_s = now_s
        self._assumed = assumed

    def assume(self, arrivals: float) -> None:
        """Assume another number of arrivals."""
        self._assumed = arrivals

    def arrived(self, now_s: float) -> None:
        """Count an arrival."""
        gap = now_s - self._last_s
        self._count = self._count * _KEEP + 1
        self._span_s = self._span_s * _KEEP + (gap if gap > 0 else 0.0)
        self._last_s = now_s

    def per_s(self, now_s: float) -> float:
        """Return the arrivals in a second; fewer, the longer nothing has arrived."""
        gap = now_s - self._last_s
        span = self._span_s + gap if gap > 0 else self._span_s
        return (self._count + self._assumed) / (max(_FIRST_S, span))
