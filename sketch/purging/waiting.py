"""The keys that one process took from the queue and that not all purgers have confirmed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sketch.protocol.port import Purge
from sketch.purging.port import CachedKey, PurgesWaiting

__all__ = ["WaitingKeys"]

_MAX_KEYS: Final = 100_000
_RETENTION_S: Final = 120.0
"""A key that is not handed out for this long was purged by another replica."""


class WaitingKeys:
    """Remembers keys that not all purgers have confirmed; the queue remembers what is owed."""

    def __init__(self) -> None:
        self._since: dict[CachedKey, float] = {}
        self._entries: dict[CachedKey, tuple[float, int]] = {}  # time and ticket
        self._tickets: dict[CachedKey, dict[str, int]] = {}  # the last ticket, by purger
        self._repeated = 0

    def take(self, now: float, purges: Iterable[Purge]) -> None:
        """Record purges that the queue handed out, in the order of the keys' last time."""
        for purge in purges:
            key = CachedKey.of(purge)
            if self._entries.pop(key, None) is not None:
                self._repeated += 1
            elif len(self._entries) >= _MAX_KEYS:
                continue
            self._entries[key] = now, purge.ticket
            self._since.setdefault(key, now)

    def is_confirmed(self, purger: str, purge: Purge) -> bool:
        """Whether a purger has confirmed this purge, or a later one of its key."""
        return self._tickets.get(CachedKey.of(purge), {}).get(purger, -1) >= purge.ticket

    def confirm(self, purger: str, purges: Iterable[Purge]) -> None:
        for purge in purges:
            key = CachedKey.of(purge)
            if key in self._entries:
                tickets = self._tickets.setdefault(key, {})
                tickets[purger] = max(tickets.get(purger, purge.ticket), purge.ticket)

    def forget(self, purges: Iterable[Purge]) -> None:
        """Forget acknowledged keys, except those of which a later purge was taken meanwhile."""
        for purge in purges:
            key = CachedKey.of(purge)
            if key in self._entries and self._entries[key][1] == purge.ticket:
                self._forget(key)

    def _forget(self, key: CachedKey) -> None:
        del self._entries[key], self._since[key]
        self._tickets.pop(key, None)

    def event(self, now: float) -> PurgesWaiting:
        """Return the event of the waiting keys; each repetition is counted in one event only."""
        while self._entries:
            key, (taken_s, _) = next(iter(self._entries.items()))
            if now - taken_s < _RETENTION_S:
                break
            self._forget(key)
        repeated, self._repeated = self._repeated, 0
        oldest = next(iter(self._since.values()), now)
        return PurgesWaiting(len(self._entries), now - oldest, repeated)
