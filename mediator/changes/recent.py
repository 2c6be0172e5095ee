"""What was brought to the feed lately, from records that keep it no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from mediator.base.clock import Clock
from mediator.changes.relay import KEEP_S
from mediator.model.change import Change

__all__ = ["Recent"]

_MOST: Final = 100_000


class Recent:
    """Changes of the last minutes, bounded in number."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: deque[tuple[float, Change]] = deque()
        self.cut = False
        """Whether some were forgotten before their time."""

    def note(self, changes: Sequence[Change]) -> None:
        """Remember changes."""
        now = self._clock.monotonic()
        self._changes.extend((now, change) for change in changes)
        while self._changes and self._changes[0][0] < now - KEEP_S:
            self._changes.popleft()
            self.cut = False
        while len(self._changes) > _MOST:
            self._changes.popleft()
            self.cut = True

    def of(self, database: str) -> list[Change]:
        """Return the changes of a database, in their order."""
        return [change for _, change in self._changes if change.database_id == database]
