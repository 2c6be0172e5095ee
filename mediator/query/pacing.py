"""Looking at many objects without holding the event loop, and within the time of a query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from mediator.offload import offload
from mediator.query.budget import Budget
from mediator.query.evaluate import Lookup, compile_filter
from mediator.query.filters import And, Contains, Filter, Like, Not, Or, Path

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
        self._until_s = budget.clock.monotonic() + SLICE_S

    async def keep(self) -> None:
        """Go on at once, or after what else is due; raises `TooCostly` if the time is over."""
        self._budget.left_s()
        clock = self._budget.clock
        if clock.monotonic() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = clock.monotonic() + SLICE_S


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
            await self._pace.keep()
            if await self._holds(lookup(each)):
                kept.append(each)
        return kept

    async def _holds(self, lookup: Lookup) -> bool:
        return await offload(self._is_long(lookup), self._test, lookup)

    def _is_long(self, lookup: Lookup) -> bool:
        values = (lookup(path) for path in self._searched)
        return any(isinstance(value, str | list) and len(value) > LONG for value in values)


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
