"""Progress, and cancellation, of a stage of several consecutive loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["Steps"]

ItemT = TypeVar("ItemT")


class Steps:
    """Counts finished steps.

    Args:
        report: Called with the numbers of finished and all steps; it can raise.

    Attributes:
        total: The number of all steps; an estimate until it is known.
    """

    def __init__(self, report: Callable[[int, int], None], total: int) -> None:
        self._report = report
        self._done = 0
        self.total = total

    def add(self, number: int = 0) -> None:
        """Add finished steps, and report."""
        self._done += number
        self._report(self._done, self.total)

    def over(self, items: Sequence[ItemT], size: int) -> Iterator[ItemT]:
        """Yield items; report after each `size` of them."""
        for number, item in enumerate(items, 1):
            yield item
            if number % size == 0:
                self.add(size)
        self.add(len(items) % size)
