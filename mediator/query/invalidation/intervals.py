"""Intervals, and which of them a value is in."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Final, TypeAlias

__all__ = ["Intervals"]

Bound: TypeAlias = tuple[Any, ...]

_LOWEST: Final[Bound] = (0,)
_HIGHEST: Final[Bound] = (2,)
_NEW: Final = 32
_NEW_SHARE: Final = 8


class Intervals:
    """Closed intervals over values of one kind, each of a name.

    Most are in a balanced tree, laid out over an array that is sorted by the lower bounds, where
    each node knows the highest upper bound below it. New ones wait in a list, until there are
    enough of them to build the tree anew: amortised, adding takes logarithmic time. Names that are
    no longer wanted are forgotten then, too.
    """

    def __init__(self) -> None:
        self._new: list[tuple[Bound, Bound, str]] = []
        self._sorted: list[tuple[Bound, Bound, str]] = []
        self._tops: list[Bound] = []

    def add(self, name: str, low: Any, high: Any, wanted: Container[str]) -> None:
        """Add an interval; None is no bound."""
        bounds = _LOWEST if low is None else (1, low), _HIGHEST if high is None else (1, high)
        self._new.append((*bounds, name))
        if len(self._new) > _NEW + len(self._sorted) // _NEW_SHARE:
            entries = {entry for entry in (*self._sorted, *self._new) if entry[2] in wanted}
            self._sorted, self._new = sorted(entries), []
            self._tops = [_LOWEST] * len(self._sorted)
            self._build(0, len(self._sorted))

    def around(self, value: Any) -> Iterator[str]:
        """Return the names of the intervals that a value is in, some perhaps more than once."""
        at = (1, value)
        for low, high, name in self._new:
            if low <= at <= high:
                yield name
        yield from self._below(at, 0, len(self._sorted))

    def _build(self, first: int, end: int) -> Bound:
        if first >= end:
            return _LOWEST
        middle = (first + end) // 2
        below = self._build(first, middle), self._build(middle + 1, end)
        top = self._tops[middle] = max(self._sorted[middle][1], *below)
        return top

    def _below(self, at: Bound, first: int, end: int) -> Iterator[str]:
        """Search the subtree of a slice; its node is the middle one."""
        if first >= end:
            return
        middle = (first + end) // 2
        if self._tops[middle] < at:
            return
        yield from self._below(at, first, middle)
        low, high, name = self._sorted[middle]
        if low <= at:
            if at <= high:
                yield name
            yield from self._below(at, middle + 1, end)
