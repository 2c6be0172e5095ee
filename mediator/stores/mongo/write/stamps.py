"""Stamps of writes: the store's clock, strictly increasing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mediator.base.clock import Clock

__all__ = ["Stamps"]

_FOLLOWED_US: Final = 1_000_000
"""How far ahead of our clock another may be and still be followed."""


class Stamps:
    """The store's clock, in microseconds, never twice the same.

    It follows other processes whose clocks are slightly ahead: a write whose version is taken
    already costs two more round trips.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        """Return the time, later than every time returned before, unless the clock went back."""
        now = int(self._clock.now() * 1_000_000)
        ahead = now <= self._last < now + _FOLLOWED_US
        self._last = self._last + 1 if ahead else now
        return self._last

    def seen(self, versions: Iterable[Any]) -> None:
        """Follow versions that are ahead by less than a second."""
        now = int(self._clock.now() * 1_000_000)
        for version in versions:
            if self._last < version < now + _FOLLOWED_US:
                self._last = int(version)
