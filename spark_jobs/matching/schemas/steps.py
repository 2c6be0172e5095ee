"""Progress of a stage that is several loops, one behind the other: there it is cancelled, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["Steps"]

ItemT = TypeVar("ItemT")


class Steps:
    """Counts what is done.

    Args:
        report: Is called with what is done, and the total; it may raise.

    Attributes:
        total: What there is to do; it is corrected when it is known.
    """

    def __init__(self, report: Callable[[int, int], None], total: int) -> None:
        self._report = report
        self._done = 0
        self.total = total

    def add(self, number: int = 0) -> None:
        """Report that so much more is done."""
        self._done += number
        self._report(self._done, self.total)

    def over(self, items: Sequence[ItemT], size: int) -> Iterator[ItemT]:
        """Yield items; report whenever so many more of them are done."""
        for number, item in enumerate(items, 1):
            yield item
            if number % size == 0:
                self.add(size)
        self.add(len(items) % size)
