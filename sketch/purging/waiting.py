"""The keys that one process has taken from the queue, and that not all purgers have confirmed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sketch.protocol.port import Purge
from sketch.purging.port import CachedKey, PurgesWaiting

__all__ = ["WaitingKeys"]

_MOST: Final = 100_000
_FORGOTTEN_S: Final = 120.0
"""A key that was not handed out for so long was purged by another replica."""


class WaitingKeys:
    """Remembers keys that not all purgers have confirmed; the queue remembers what is owed."""

    def __init__(self) -> None:
        self._since: dict[CachedKey, float] = {}
        self._taken: dict[CachedKey, tuple[float, int]] = {}  # when, and with which ticket
        self._confirmed: dict[CachedKey, dict[str, int]] = {}  # the last ticket, by purger
        self._repeated = 0

    def take(self, now: float, purges: Iterable[Purge]) -> None:
        """Record what the queue handed out, in the order of the keys' last time."""
        for purge in purges:
            key = CachedKey.of(purge)
            if self._taken.pop(key, None) is not None:
                self._repeated += 1
            elif len(self._taken) >= _MOST:
                continue
            self._taken[key] = now, purge.ticket
            self._since.setdefault(key, now)

    def is_confirmed(self, purger: str, purge: Purge) -> bool:
        """Whether a purger has confirmed this purge, or a later one of its key."""
        return self._confirmed.get(CachedKey.of(purge), {}).get(purger, -1) >= purge.ticket

    def confirm(self, purger: str, purges: Iterable[Purge]) -> None:
        for purge in purges:
            key = CachedKey.of(purge)
            if key in self._taken:
                tickets = self._confirmed.setdefault(key, {})
                tickets[purger] = max(tickets.get(purger, purge.ticket), purge.ticket)

    def acknowledged(self, purges: Iterable[Purge]) -> None:
        """Forget keys, but for those of which a later purge was taken meanwhile."""
        for purge in purges:
            key = CachedKey.of(purge)
            if key in self._taken and self._taken[key][1] == purge.ticket:
                self._forget(key)

    def _forget(self, key: CachedKey) -> None:
        del self._taken[key], self._since[key]
        self._confirmed.pop(key, None)

    def event(self, now: float) -> PurgesWaiting:
        """Return what is waiting; keys count as repeated once."""
        while self._taken:
            key, (taken, _) = next(iter(self._taken.items()))
            if now - taken < _FORGOTTEN_S:
                break
            self._forget(key)
        repeated, self._repeated = self._repeated, 0
        oldest = next(iter(self._since.values()), now)
        return PurgesWaiting(len(self._taken), now - oldest, repeated)
