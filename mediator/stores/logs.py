"""What change logs of different stores have in common: positions, and reading in portions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from mediator.stores.port import LogEntry, StoreTimeout

__all__ = ["Page", "Portions", "numbers_of", "padded", "position_of", "read_on"]

Page: TypeAlias = list[tuple[LogEntry, int]]
"""Entries of a log, each with its size in bytes."""

_WIDTH: Final = 20
"""Digits of 64 bits."""

_ZERO: Final = "0"

_FIRST: Final = 200
_MOST: Final = 1_000
_BYTES: Final = 4_000_000


def position_of(major: int, minor: int) -> str:
    """Return the position of an entry that is told by two numbers of 64 bits, in their order."""
    return padded(str(major), str(minor))


def padded(major: str, minor: str) -> str:
    """Return the same of numbers that are written out."""
    return f"{major.rjust(_WIDTH, _ZERO)}-{minor.rjust(_WIDTH, _ZERO)}"


def numbers_of(position: str | None) -> tuple[int, int]:
    """Return the two numbers of a position; None is before all of them."""
    major, _, minor = (position or "0-0").partition("-")
    return int(major), int(minor)


class Portions:
    """How many entries of a log to ask for at once, learnt from how large they have been.

    An entry may be a few bytes or some megabytes. One answer has to come within the store's
    deadline, or the log would be stuck for ever.
    """

    def __init__(self) -> None:
        self.count = _FIRST

    def came(self, sizes: Sequence[int]) -> None:
        """Learn from an answer.

        Args:
            sizes: How large the entries were, in bytes.
        """
        if sizes:
            fitting = _BYTES * len(sizes) // max(1, sum(sizes))
            self.count = max(1, min(2 * self.count, fitting, _MOST))

    def failed(self) -> None:
        """Learn from an answer that did not come in time."""
        self.count = max(1, self.count // 10)


async def read_on(
    portions: Portions,
    after: str | None,
    limit: int,
    page: Callable[[str | None, int], Awaitable[Page]],
) -> list[LogEntry]:
    """Read up to `limit` entries beyond a position, fewer only at the end of the log.

    Args:
        portions: How many to ask for at once.
        after: The position; None: from the oldest.
        limit: How many to return at most.
        page: Returns up to so many entries beyond a position.
    """
    entries: list[LogEntry] = []
    while len(entries) < limit:
        asked = min(portions.count, limit - len(entries))
        try:
            some = await page(after, asked)
        except StoreTimeout:
            portions.failed()
            raise
        portions.came([size for _, size in some])
        entries += [entry for entry, _ in some]
        if len(some) < asked:
            break
        after = entries[-1].position
    return entries
