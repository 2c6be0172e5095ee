"""Clocks for tests."""

from __future__ import annotations

__all__ = ["Ticking"]


class Ticking:
    """A clock that advances by a millisecond at every reading."""

    def __init__(self) -> None:
        self.readings = 0

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        self.readings += 1
        return self.readings / 1_000
