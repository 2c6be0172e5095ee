"""Changes relayed lately, which their records no longer have: the feed may lose them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from mediator.base.clock import Clock
from mediator.changes.document import EncodedChange

__all__ = ["RecentChanges"]

_MOST: Final = 100_000
_MOST_BYTES: Final = 2**27


class _Kept(NamedTuple):
    """A change, encoded: that takes a fraction of the memory of its values."""

    at_s: float
    database: str
    change: EncodedChange


class RecentChanges:
    """Keeps changes for some time, the latest ones if they are too many.

    Args:
        keep_s: For how many seconds.
        most: How many are kept.
        most_bytes: How many bytes their documents have together.
    """

    def __init__(
        self, clock: Clock, keep_s: float, most: int = _MOST, most_bytes: int = _MOST_BYTES
    ) -> None:
        self._clock = clock
        self._keep_s = keep_s
        self._most = most
        self._most_bytes = most_bytes
        self._changes: deque[_Kept] = deque()
        self._bytes = 0
        self.is_truncated = False
        """Whether some were dropped before their time."""

    def add(self, database: str, changes: Iterable[EncodedChange]) -> None:
        """Add changes of a database, given by its id, in their order."""
        now = self._clock.monotonic()
        for change in changes:
            self._changes.append(_Kept(now, database, change))
            self._bytes += len(change.document)
        while self._changes and self._changes[0].at_s < now - self._keep_s:
            self._drop()
            # What was dropped before its time was older: that time is over as well.
            self.is_truncated = False
        while len(self._changes) > self._most or self._bytes > self._most_bytes:
            self._drop()
            self.is_truncated = True

    def of(self, database: str) -> list[EncodedChange]:
        """Return the changes of a database, in their order."""
        return [kept.change for kept in self._changes if kept.database == database]

    def _drop(self) -> None:
        self._bytes -= len(self._changes.popleft().change.document)
