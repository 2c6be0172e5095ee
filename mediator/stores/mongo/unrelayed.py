"""Which records this process has written, so that the relay need not search for them."""

from __future__ import annotations

from itertools import islice
from typing import Final, TypeAlias

from mediator.stores.port import Write

__all__ = ["Unrelayed", "Where"]

Where: TypeAlias = tuple[str, str, str]
"""Id of the database, class and id."""

_MOST: Final = 100_000
"""Records beyond are forgotten, and found by the relay's sweep."""


class Unrelayed:
    """A bounded set of records, in the order in which they came."""

    def __init__(self) -> None:
        self._records: dict[Where, None] = {}

    def note(self, write: Write) -> None:
        """Note that a record may have been written."""
        if len(self._records) < _MOST:
            fragment = write.fragment
            self._records[fragment.database_id, fragment.class_name, write.id] = None

    def note_again(self, where: Where) -> None:
        """Note that a record has still more in its outbox."""
        self._records[where] = None

    def take(self, limit: int) -> list[Where]:
        """Return the first `limit` records, and forget them."""
        taken = list(islice(self._records, limit))
        for where in taken:
            del self._records[where]
        return taken
