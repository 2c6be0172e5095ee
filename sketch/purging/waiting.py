"""Keys that were taken from the queue and are not purged everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sketch.purging.events import PurgesWaiting
from sketch.purging.port import CachedKey

__all__ = ["WaitingKeys"]

_MOST: Final = 100_000
_FORGOTTEN_S: Final = 120.0
"""A key that was not given out for as long was purged by another replica."""


class WaitingKeys:
    """Remembers them for what is told of purging; what is owed is the queue's to remember."""

    def __init__(self) -> None:
        self._since: dict[CachedKey, float] = {}
        self._taken: dict[CachedKey, float] = {}
        self._repeated = 0

    def take(self, now: float, keys: Iterable[CachedKey]) -> None:
        """Note keys that the queue gave out, in the order of their last time."""
        for key in keys:
            if self._taken.pop(key, None) is not None:
                self._repeated += 1
            elif len(self._taken) >= _MOST:
                continue
            self._taken[key] = now
            self._since.setdefault(key, now)

    def confirmed(self, keys: Iterable[CachedKey]) -> None:
        """Forget keys that are purged everywhere."""
        for key in keys:
            self._taken.pop(key, None)
            self._since.pop(key, None)

    def event(self, now: float) -> PurgesWaiting:
        """Return what there is to tell; keys count as repeated once."""
        while self._taken:
            key, taken = next(iter(self._taken.items()))
            if now - taken < _FORGOTTEN_S:
                break
            self.confirmed([key])
        repeated, self._repeated = self._repeated, 0
        oldest = next(iter(self._since.values()), now)
        return PurgesWaiting(len(self._taken), now - oldest, repeated)
