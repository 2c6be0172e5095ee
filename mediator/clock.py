"""Clocks, injectable: tests skew them."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Wall and monotonic time."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""


class SystemClock:
    """The machine's own clocks, with no function of ours between: they are asked often."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
