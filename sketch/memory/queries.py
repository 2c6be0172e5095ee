"""Queries that are registered."""

from __future__ import annotations

from sketch.protocol.port import QueryRegistrations

__all__ = ["Registrations"]

_QUIET_US = 100_000


class Registrations:
    """The keys of query results of which copies may be alive that no write has outdated."""

    def __init__(self, most: int, first: int) -> None:
        self._most = most
        self._numbers: dict[str, int] = {}
        self._quiet_until = 0
        self.sequence = first

    def __contains__(self, key: str) -> bool:
        return key in self._numbers

    def is_open(self, now: int, key: str) -> bool:
        """Whether a query may be registered, unless it is already."""
        if key in self._numbers:
            return True
        return now >= self._quiet_until and len(self._numbers) < self._most

    def add(self, key: str) -> None:
        """Register a query."""
        if key not in self._numbers:
            self.sequence += 1
            self._numbers[key] = self.sequence

    def discard(self, key: str) -> None:
        """Register a query no more."""
        self._numbers.pop(key, None)

    def keep_quiet(self, now: int) -> None:
        """Let nobody register for a moment."""
        self._quiet_until = now + _QUIET_US

    def since(self, sequence: int) -> QueryRegistrations:
        """Tell what was registered after a mark; all if the mark is not of this life."""
        complete = sequence == 0 or sequence > self.sequence
        numbers = {key: n for key, n in self._numbers.items() if complete or n > sequence}
        return QueryRegistrations(
            self.sequence, len(self._numbers), numbers, complete and sequence != self.sequence
        )
