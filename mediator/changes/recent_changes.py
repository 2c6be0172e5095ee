"""Changes relayed lately, whose records keep them no more: the feed may lose and need them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from mediator.base.clock import Clock
from mediator.changes.relay import KEEP_S
from mediator.model.change import Change

__all__ = ["RecentChanges"]

_MAX: Final = 100_000


class RecentChanges:
    """Changes of the last minutes, bounded in number."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: deque[tuple[float, Change]] = deque()
        self.is_truncated = False
        """Whether some were dropped before their time."""

    def add(self, changes: Sequence[Change]) -> None:
        """Add changes."""
        now = self._clock.monotonic()
        self._changes.extend((now, change) for change in changes)
        while self._changes and self._changes[0][0] < now - KEEP_S:
            self._changes.popleft()
            self.is_truncated = False
        while len(self._changes) > _MAX:
            self._changes.popleft()
            self.is_truncated = True

    def of(self, database: str) -> list[Change]:
        """Return the changes of a database, in their order."""
        return [change for _, change in self._changes if change.database_id == database]
