"""Recently relayed changes: their records no longer have them, and the feed may lose them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from mediator.base.clock import Clock
from mediator.changes.document import EncodedChange

__all__ = ["RecentChanges"]

_MAX_CHANGES: Final = 100_000
_MAX_BYTES: Final = 2**27


class _RecentChange(NamedTuple):
    """A change, encoded: a fraction of the memory of its values."""

    at_s: float
    database: str
    change: EncodedChange


class RecentChanges:
    """Keeps changes for some time, only the latest if there are too many.

    Args:
        keep_s: How long changes are kept, in seconds.
        max_changes: How many are kept at most.
        max_bytes: Maximum total size of their documents, in bytes.
    """

    def __init__(
        self,
        clock: Clock,
        keep_s: float,
        max_changes: int = _MAX_CHANGES,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self._clock = clock
        self._keep_s = keep_s
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._changes: deque[_RecentChange] = deque()
        self._bytes = 0
        self.is_truncated = False
        """Whether changes were dropped before their time."""

    def add(self, database: str, changes: Iterable[EncodedChange]) -> None:
        """Add changes of a database, given by its id, in their order."""
        now = self._clock.monotonic()
        for change in changes:
            self._changes.append(_RecentChange(now, database, change))
            self._bytes += len(change.document)
        while self._changes and self._changes[0].at_s < now - self._keep_s:
            self._drop()
            # Changes dropped before their time were older: their time is over as well.
            self.is_truncated = False
        while len(self._changes) > self._max_changes or self._bytes > self._max_bytes:
            self._drop()
            self.is_truncated = True

    def of(self, database: str) -> list[EncodedChange]:
        """Return the changes of a database, in their order."""
        return [recent.change for recent in self._changes if recent.database == database]

    def _drop(self) -> None:
        self._bytes -= len(self._changes.popleft().change.document)
