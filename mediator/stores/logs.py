"""Change logs of all stores: positions, and pages whose size adapts to that of the entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from mediator.stores.port import LogEntry, StoreTimeout

__all__ = ["Page", "PageSize", "numbers_of", "padded", "position_of", "read_on"]

Page: TypeAlias = list[tuple[LogEntry, int]]
"""Entries of a log, each with its size in bytes."""

_WIDTH: Final = 20
"""Digits of 64 bits."""

_ZERO: Final = "0"

_FIRST: Final = 200
_MOST: Final = 1_000
_BYTES: Final = 4_000_000


def position_of(major: int, minor: int) -> str:
    """Return the position of an entry with two numbers of 64 bits, ordered as these are."""
    return padded(str(major), str(minor))


def padded(major: str, minor: str) -> str:
    """Return the position for two decimal texts."""
    return f"{major.rjust(_WIDTH, _ZERO)}-{minor.rjust(_WIDTH, _ZERO)}"


def numbers_of(position: str | None) -> tuple[int, int]:
    """Return the two numbers of a position; None is before all of them."""
    major, _, minor = (position or "0-0").partition("-")
    return int(major), int(minor)


class PageSize:
    """The size of the next page of a log, adapted to the sizes of its entries.

    An entry may be a few bytes or some megabytes. A page has to arrive within the store's
    deadline, or the log would never be read on.
    """

    def __init__(self) -> None:
        self.count = _FIRST

    def succeeded(self, sizes: Sequence[int]) -> None:
        """Adapt to a page that was read.

        Args:
            sizes: How large the entries were, in bytes.
        """
        if sizes:
            fitting = _BYTES * len(sizes) // max(1, sum(sizes))
            self.count = max(1, min(2 * self.count, fitting, _MOST))

    def failed(self) -> None:
        """Adapt to a page that did not arrive in time."""
        self.count = max(1, self.count // 10)


async def read_on(
    page_size: PageSize,
    after: str | None,
    limit: int,
    page: Callable[[str | None, int], Awaitable[Page]],
) -> list[LogEntry]:
    """Read up to `limit` entries beyond a position, fewer only at the end of the log.

    Args:
        page_size: Adapts how many to read at once.
        after: The position; None: from the oldest.
        limit: How many to return at most.
        page: Returns up to so many entries beyond a position.
    """
    entries: list[LogEntry] = []
    while len(entries) < limit:
        count = min(page_size.count, limit - len(entries))
        try:
            some = await page(after, count)
        except StoreTimeout:
            page_size.failed()
            raise
        page_size.succeeded([size for _, size in some])
        entries += [entry for entry, _ in some]
        if len(some) < count:
            break
        after = entries[-1].position
    return entries
