"""Evaluating filters on many objects: cooperatively, and within the time of a query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from mediator.base.offload import offload
from mediator.model.evaluate import Lookup, compile_filter
from mediator.model.filters import And, Contains, Filter, Like, Not, Or, Path
from mediator.query.budget import Budget

__all__ = ["LONG", "Checkpoints", "FilterEvaluator"]

SLICE_S: Final = 0.002
"""Seconds after which the event loop goes on with what else is due."""

LONG: Final = 2**14
"""Characters or elements from which on a value is searched in a thread: to search one may take
longer than a slice. RE2 lets the interpreter go on meanwhile."""


_T = TypeVar("_T")


class Checkpoints:
    """Yields to the event loop every few milliseconds, in a loop over many objects."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._monotonic = budget.clock.monotonic
        self._until_s = self._slice_end_s()

    def is_due(self) -> bool:
        """Whether `checkpoint` would yield; a hot loop awaits it only then."""
        return self._monotonic() >= self._until_s

    async def checkpoint(self) -> None:
        """Yield if it is due; raises `TooCostly` if the time of the query is over."""
        if self.is_due():
            self._budget.left_s()
            await asyncio.sleep(0)
            self._until_s = self._slice_end_s()

    def _slice_end_s(self) -> float:
        return self._monotonic() + min(SLICE_S, self._budget.left_s())


class FilterEvaluator:
    """Evaluates one filter on many objects."""

    def __init__(self, filter_: Filter, budget: Budget) -> None:
        self._test = compile_filter(filter_)
        self._searched = _searched(filter_)
        self._checkpoints = Checkpoints(budget)

    async def select(self, objects: Iterable[_T], lookup: Callable[[_T], Lookup]) -> list[_T]:
        """Return the objects that the filter holds for.

        Raises:
            TooCostly: The time of the query is over.
        """
        selected: list[_T] = []
        for each in objects:
            if self._checkpoints.is_due():
                await self._checkpoints.checkpoint()
            values = lookup(each)
            is_long = self._is_long(values)
            holds = await offload(True, self._test, values) if is_long else self._test(values)
            if holds:
                selected.append(each)
        return selected

    def _is_long(self, lookup: Lookup) -> bool:
        for path in self._searched:
            value = lookup(path)
            if isinstance(value, str | list) and len(value) > LONG:
                return True
        return False


def _searched(filter_: Filter) -> frozenset[Path]:
    """Return the paths whose values are searched through."""
    match filter_:
        case And(operands) | Or(operands):
            return frozenset().union(*map(_searched, operands))
        case Not(operand):
            return _searched(operand)
        case Like(path) | Contains(path):
            return frozenset({path})
    return frozenset()
