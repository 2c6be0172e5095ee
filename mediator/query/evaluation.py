"""Looking at many objects without holding the event loop, and within the time of a query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from mediator.base.offload import offload
from mediator.model.evaluate import Lookup, compile_filter
from mediator.model.filters import And, Contains, Filter, Like, Not, Or, Path
from mediator.query.budget import Budget

__all__ = ["LONG", "Pace", "Sieve"]

SLICE_S: Final = 0.002
"""Seconds after which the event loop goes on with what else is due."""

LONG: Final = 2**14
"""Characters or elements from which on a value is searched in a thread: to search one may take
longer than a slice. RE2 lets the interpreter go on meanwhile."""


_T = TypeVar("_T")


class Pace:
    """Lets the event loop go on now and then; asked for each object, as is the budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._monotonic = budget.clock.monotonic
        self._until_s = self._slice_end_s()

    def is_due(self) -> bool:
        """Whether `keep` has anything to do: a loop over many objects need not await it then."""
        return self._monotonic() >= self._until_s

    async def keep(self) -> None:
        """Go on at once, or after what else is due; raises `TooCostly` if the time is over."""
        if self.is_due():
            self._budget.left_s()
            await asyncio.sleep(0)
            self._until_s = self._slice_end_s()

    def _slice_end_s(self) -> float:
        return self._monotonic() + min(SLICE_S, self._budget.left_s())


class Sieve:
    """A filter that many objects are put through.

    Args:
        filter_: The filter.
        budget: What the query may cost.
    """

    def __init__(self, filter_: Filter, budget: Budget) -> None:
        self._test = compile_filter(filter_)
        self._searched = _searched(filter_)
        self._pace = Pace(budget)

    async def sift(self, objects: Iterable[_T], lookup: Callable[[_T], Lookup]) -> list[_T]:
        """Return the objects that the filter holds for.

        Args:
            objects: The objects.
            lookup: Returns the lookup of one.

        Raises:
            TooCostly: The time of the query is over.
        """
        kept: list[_T] = []
        for each in objects:
            if self._pace.is_due():
                await self._pace.keep()
            found = lookup(each)
            is_long = self._is_long(found)
            holds = await offload(True, self._test, found) if is_long else self._test(found)
            if holds:
                kept.append(each)
        return kept

    def _is_long(self, lookup: Lookup) -> bool:
        for path in self._searched:
            value = lookup(path)
            if isinstance(value, str | list) and len(value) > LONG:
                return True
        return False


def _searched(filter_: Filter) -> frozenset[Path]:
    """Return the paths whose values are searched through."""
    match filter_:
        case And(parts) | Or(parts):
            return frozenset().union(*map(_searched, parts))
        case Not(part):
            return _searched(part)
        case Like(path) | Contains(path):
            return frozenset({path})
    return frozenset()
