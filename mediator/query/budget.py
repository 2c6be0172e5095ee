"""Limits of the cost of a query, its cost so far, and evaluating filters within them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, TypeVar

from mediator.base.clock import Clock
from mediator.base.errors import TooCostly
from mediator.base.offload import offload
from mediator.base.slices import Slices
from mediator.model.evaluate import Lookup, compile_filter
from mediator.model.filters import And, Contains, Filter, Like, Not, Or, Path

__all__ = ["LONG", "Budget", "Ceiling", "FilterEvaluator", "Limits"]


_SLICE_S: Final = 0.002
"""Seconds after which the event loop runs other tasks."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The caller's own limits on a query, in addition to `Limits`; None: no limit."""

    rows: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the cost of a query.

    Attributes:
        rows: Records that stores may send for it.
        seconds: Time it may take.
        groups: Groups that an aggregate may have.
        bytes: Total size of the objects that are read for it, including joined ones.
    """

    rows: int = 100_000
    seconds: float = 10.0
    groups: int = 10_000
    bytes: int = 2**28

    def under(self, ceiling: Ceiling) -> Limits:
        """Return these limits, lowered to a ceiling."""
        rows = self.rows if ceiling.rows is None else min(self.rows, ceiling.rows)
        seconds = self.seconds if ceiling.seconds is None else min(self.seconds, ceiling.seconds)
        return replace(self, rows=rows, seconds=seconds)


@dataclass(slots=True)
class Budget:
    """The cost of one query; raises `TooCostly` when it goes beyond its limits."""

    limits: Limits
    clock: Clock
    started: float = 0.0
    rows: int = 0
    bytes: int = 0
    round_trips: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()

    def remaining_s(self) -> float:
        remaining = self.limits.seconds - (self.clock.monotonic() - self.started)
        if remaining <= 0:
            raise self.too_long()
        return remaining

    def slices(self) -> Slices:
        """Return slices of this query's work, which raise `TooCostly` when its time is over."""
        return Slices(self.clock, _SLICE_S, self.remaining_s)

    def spend(self, system: str, rows: int) -> None:
        """Count a round trip and the rows that it returned."""
        self.round_trips[system] += 1
        self.rows += rows
        if self.rows > self.limits.rows:
            raise TooCostly(
                f"The query examines more than {self.limits.rows} rows. What helps: an index on a"
                " field of the filter, or a narrower filter.",
                extra={"rows": self.limits.rows},
            )

    @property
    def room(self) -> int:
        """How many bytes of objects may still be read."""
        return max(self.limits.bytes - self.bytes, 0)

    def admit(self, sizes: Sequence[int], *, partly: bool = False) -> int:
        """Count objects read, by their sizes in bytes.

        Args:
            sizes: The size of each object.
            partly: Whether objects beyond the limit can be left out; else the query is aborted.

        Returns:
            How many objects are within the limit; the very first one always is.
        """
        total = sum(sizes)
        if self.bytes + total > self.limits.bytes:
            if not partly:
                raise self.too_large()
            sizes = self._within_limit(sizes)
            total = sum(sizes)
        self.bytes += total
        return len(sizes)

    def _within_limit(self, sizes: Sequence[int]) -> Sequence[int]:
        sums = accumulate(sizes, initial=self.bytes)
        count = sum(1 for total in sums if total <= self.limits.bytes) - 1
        return sizes[: max(count, 0 if self.bytes else 1)]

    def too_large(self) -> TooCostly:
        error = TooCostly(
            f"The query reads objects of more than {self.limits.bytes} bytes. What helps: fewer"
            " fields, a smaller limit, or a narrower filter.",
            extra={"bytes": self.limits.bytes},
        )
        error.examined = self.rows
        return error

    def too_long(self) -> TooCostly:
        return TooCostly(
            f"The query takes more than {self.limits.seconds:g} s. What helps: an index on a field"
            " of the filter, or a narrower filter.",
            extra={"seconds": self.limits.seconds},
        )


LONG: Final = 2**14
"""Characters or elements from which a value is searched in a thread: a search can take longer than
a slice. RE2 lets the interpreter run meanwhile."""


_T = TypeVar("_T")


class FilterEvaluator:
    def __init__(self, filter_: Filter, budget: Budget) -> None:
        self._test = compile_filter(filter_)
        self._searched_paths = _searched_paths(filter_)
        self._slices = budget.slices()

    async def select(self, objects: Iterable[_T], lookup: Callable[[_T], Lookup]) -> list[_T]:
        """Return the objects for which the filter holds; raises `TooCostly` when time is over."""
        selected: list[_T] = []
        for item in objects:
            if self._slices.is_due():
                await self._slices.checkpoint()
            values = lookup(item)
            is_long = self._is_long(values)
            holds = await offload(True, self._test, values) if is_long else self._test(values)
            if holds:
                selected.append(item)
        return selected

    def _is_long(self, lookup: Lookup) -> bool:
        for path in self._searched_paths:
            value = lookup(path)
            if isinstance(value, str | list) and len(value) > LONG:
                return True
        return False


def _searched_paths(filter_: Filter) -> frozenset[Path]:
    match filter_:
        case And(operands) | Or(operands):
            return frozenset().union(*map(_searched_paths, operands))
        case Not(operand):
            return _searched_paths(operand)
        case Like(path) | Contains(path):
            return frozenset({path})
    return frozenset()
