"""Checks the staleness of reads, by every write and every read.

A read is too old if it returns less than a value that was acknowledged, or read by anyone, more
than Δ before the read began (docs/protocol.md: ACK and VIS). Each object is a counter that only
grows, so that an older value is also lower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

__all__ = ["Staleness"]


class Staleness:
    """Checks reads, at a cost that does not grow with their number.

    Args:
        delta_s: Δ, in seconds.
        clock: Returns seconds; one clock for all writers and readers.
    """

    def __init__(self, delta_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._delta_s = delta_s
        self._clock = clock
        self._values: dict[str, deque[tuple[float, int]]] = {}
        self._lower_bounds: dict[str, int] = {}
        self.reads = 0
        self.violations = 0

    def lower_bound(self, key: str) -> int:
        """Return the lowest value that a read which begins now may return."""
        values = self._values.get(key)
        horizon = self._clock() - self._delta_s
        while values and values[0][0] < horizon:
            self._lower_bounds[key] = values.popleft()[1]
        return self._lower_bounds.get(key, 0)

    def record(self, key: str, count: int) -> None:
        """Record a value that was acknowledged, or read, just now."""
        values = self._values.setdefault(key, deque())
        latest = values[-1][1] if values else self._lower_bounds.get(key, -1)
        if count > latest:
            values.append((self._clock(), count))

    def check(self, key: str, lower_bound: int, count: int) -> None:
        """Check a read that has returned `count`, against the `lower_bound` when it began."""
        self.reads += 1
        self.violations += count < lower_bound
        self.record(key, count)
