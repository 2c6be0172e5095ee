"""Clocks, injectable: tests skew them. `docs/clocks.md` says which decision uses which."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, Protocol

__all__ = ["DRIFT", "EPOCH", "Clock", "ServerClock", "StabilityTimer", "SystemClock"]

DRIFT: Final = 500e-6
"""Limit of the relative rate difference of two monotonic clocks (that of `adjtimex(2)`)."""

EPOCH: Final = datetime.fromtimestamp(0, UTC)
"""Earlier than every event."""

_US: Final = 1_000_000


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""


class SystemClock:
    """The clocks of the machine, called directly because called often."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class ServerClock:
    """A lower bound of a server's clock: never ahead of it.

    It is the server's last reading plus the monotonic time that has passed here since. If the
    server's clock is set, this one follows with the next reading.

    Attributes:
        skew_s: The minimum seconds by which the server's clock was ahead of our wall clock at the
            last reading; negative: behind; None: no reading yet.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._server_s = float("-inf")
        self._read_at = 0.0
        self.skew_s: float | None = None

    def read(self, server_us: int, sent_at: float) -> None:
        """Set this clock by a reading that has just arrived.

        Args:
            server_us: The server's time, in microseconds since the epoch.
            sent_at: Our monotonic time when the reading was requested, in seconds.
        """
        self._server_s, self._read_at = server_us / _US, self._clock.monotonic()
        took_s = self._read_at - sent_at
        ahead_s = self._server_s - self._clock.now()
        # It was read at some moment within `took_s`: zero, if the clocks may have agreed then.
        self.skew_s = min(0.0, ahead_s + took_s) if ahead_s < 0 else ahead_s

    def now(self) -> float:
        """The minimum time of the server's clock, in seconds since the epoch; -inf: unknown."""
        # Slower than ours by `DRIFT`, as the server's clock can be.
        return self._server_s + (self._clock.monotonic() - self._read_at) * (1 - DRIFT)

    def monotonic(self) -> float:
        return self._clock.monotonic()


class StabilityTimer:
    """Measures for how long values have not changed, by this process's monotonic clock.

    So the silence of another process is measured without that process's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[object, float]] = {}

    def observe(self, key: str, value: object, sent_at: float) -> float:
        """Record a value read; returns the minimum seconds for which it is unchanged."""
        last_value, since = self._seen.get(key, (None, 0.0))
        if last_value != value:
            self._seen[key] = value, self._clock.monotonic()
            return 0.0
        # From after the first reply until before this request it was certainly the same.
        return max(0.0, sent_at - since)

    def retain(self, keys: Collection[str]) -> None:
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
