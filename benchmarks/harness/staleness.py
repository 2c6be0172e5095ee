"""Checks the staleness of reads: is given every write and every read.

A read is too old if it returns less than a write that was acknowledged, or than anything that
anybody had read, more than Δ before the read began (docs/protocol.md: ACK and VIS). Each object is
a counter that only grows, so that what is older is also less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

__all__ = ["Staleness"]


class Staleness:
    """Judges reads, at a cost that does not grow with their number.

    Args:
        delta_s: Δ, in seconds.
        clock: Seconds; one clock for all who write and read.
    """

    def __init__(self, delta_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._delta_s = delta_s
        self._clock = clock
        self._known: dict[str, deque[tuple[float, int]]] = {}
        self._due: dict[str, int] = {}
        self.reads = 0
        self.violations = 0

    def due(self, key: str) -> int:
        """Return the least that a read which begins now may return."""
        known = self._known.get(key)
        horizon = self._clock() - self._delta_s
        while known and known[0][0] < horizon:
            self._due[key] = known.popleft()[1]
        return self._due.get(key, 0)

    def known(self, key: str, count: int) -> None:
        """Note what was acknowledged, or seen, just now."""
        known = self._known.setdefault(key, deque())
        latest = known[-1][1] if known else self._due.get(key, -1)
        if count > latest:
            known.append((self._clock(), count))

    def judge(self, key: str, due: int, count: int) -> None:
        """Judge a read that has returned `count`; `due` is of when it began."""
        self.reads += 1
        self.violations += count < due
        self.known(key, count)
