"""How many entries to read at once, if these can be a few bytes or some megabytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["PageSize"]

_FIRST: Final = 200
_MAX_ENTRIES: Final = 1_000
_BYTES: Final = 4_000_000


class PageSize:
    """The size of the next page of a log, adapted to the sizes of its entries.

    A page must arrive within the deadline of its server, or reading the log would never advance;
    and it must fit into memory.

    Args:
        first: Entries of the first page, whose sizes are unknown.
    """

    def __init__(self, first: int = _FIRST) -> None:
        self.count = first

    def succeeded(self, sizes: Sequence[int]) -> None:
        """Adapt to a page that was read, by the sizes of its entries in bytes."""
        if sizes:
            fitting = _BYTES * len(sizes) // max(1, sum(sizes))
            # Never 0: an entry larger than a page must be read as well, alone.
            self.count = max(1, min(2 * self.count, fitting, _MAX_ENTRIES))

    def failed(self) -> None:
        """Adapt to a page that did not arrive in time."""
        self.count = max(1, self.count // 10)
