"""Groups of objects and their aggregates, which ignore nulls and missing values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import Any, Final, TypeAlias

from mediator.base.errors import Invalid, Location
from mediator.model.evaluate import Lookup, kind_of
from mediator.model.exact import average, decimal_of
from mediator.model.filters import Path
from mediator.model.order import rank
from mediator.model.query import Aggregate, Computation, Function
from mediator.schema.limits import DECIMAL_DIGITS
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value

__all__ = [
    "Average",
    "Count",
    "Groups",
    "Row",
    "Sum",
    "check_sums",
    "lookup_of_row",
    "too_many_groups",
]

_Key: TypeAlias = tuple[Any, ...]

_NUMBERS: Final = 2
_EXACT: Final = Context(prec=20_000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])
"""Exact, or it raises: the first and the last digit of decimals are 12,321 digits apart at most."""


@dataclass(frozen=True, slots=True)
class Row:
    """One group: the values its objects share, and the results computed over them."""

    group: tuple[Value | MissingType, ...]
    computed: Mapping[str, Value]


def lookup_of_row(aggregate: Aggregate, row: Row) -> Lookup:
    """Return the lookup for filtering and ordering results."""
    values: dict[Path, Value | MissingType] = dict(zip(aggregate.group, row.group, strict=True))
    values |= {(name,): value for name, value in row.computed.items()}
    return lambda path: values.get(path, MISSING)


class Count:
    def __init__(self) -> None:
        self.count = 0

    def add(self, value: Any, times: int = 1) -> None:  # noqa: ARG002 - every value counts alike
        self.count += times

    def result(self) -> Value:
        return self.count


class Sum:
    """Adds numbers exactly: decimals, and floats as the shortest decimals that denote them.

    So a value can be subtracted again: by adding it minus one `times`.
    """

    def __init__(self) -> None:
        self.count = 0
        self._integers = 0
        self._fractions = Decimal(0)
        self._float_count = 0
        self._decimal_count = 0

    def add(self, value: Any, times: int = 1) -> None:
        """Add a value `times` times; raises `Invalid` if the exact sum takes too many digits."""
        if kind_of(value) != _NUMBERS:
            return
        self.count += times
        if isinstance(value, int):
            self._integers += times * value
            return
        if isinstance(value, float):
            self._float_count += times
            value = decimal_of(value)
        else:
            self._decimal_count += times
        try:
            self._fractions = _EXACT.fma(value, times, self._fractions)
        except ArithmeticError:
            raise _too_long() from None

    @property
    def exact(self) -> int | Decimal:
        """The sum, not rounded; 0 without values."""
        if not (self._float_count or self._decimal_count):
            return self._integers
        return _EXACT.add(self._fractions, self._integers)

    @property
    def is_decimal(self) -> bool:
        """Whether it has decimals, and no floats."""
        return bool(self._decimal_count) and not self._float_count

    def result(self) -> Value:
        if not self.count:
            return None
        return _check_digits(float(self.exact) if self._float_count else self.exact)


def _check_digits(value: Value) -> Value:
    """Return a sum unchanged; a sum of decimals is not rounded, and its digits are bounded."""
    if isinstance(value, float) and math.isinf(value):
        raise _beyond("a sum of floats is beyond their range")
    if isinstance(value, Decimal):
        try:
            digits = len(value.normalize(_EXACT).as_tuple().digits)
        except ArithmeticError:
            raise _too_long() from None
        if digits > DECIMAL_DIGITS:
            raise _too_long()
    return value


def check_sums(row: Row) -> Row:
    """Return a row computed by a store; raises `Invalid` for a sum with too many digits."""
    for value in row.computed.values():
        _check_digits(value)
    return row


class Average(Sum):
    def result(self) -> Value:
        return average(self.exact, self.count, as_decimal=self.is_decimal)


class _Extreme:
    def __init__(self, better: Callable[[Any, Any], bool]) -> None:
        self._better = better
        self._best: Value | MissingType = MISSING

    def add(self, value: Value) -> None:
        if self._best is MISSING or self._better(rank(value), rank(self._best)):
            self._best = value

    def result(self) -> Value:
        return None if isinstance(self._best, MissingType) else self._best


_STATES: Final[Mapping[Function, Callable[[], Any]]] = {
    Function.COUNT: Count,
    Function.SUM: Sum,
    Function.AVG: Average,
    Function.MIN: lambda: _Extreme(lambda one, best: one < best),
    Function.MAX: lambda: _Extreme(lambda one, best: one > best),
}


@dataclass(slots=True)
class _Group:
    values: tuple[Value | MissingType, ...]
    states: list[Any] = field(default_factory=list)


class Groups:
    def __init__(self, aggregate: Aggregate, limit: int) -> None:
        self._aggregate = aggregate
        self._limit = limit
        self._compute = list(aggregate.compute.values())
        self._groups: dict[_Key, _Group] = {}
        if not aggregate.group:
            self._groups[()] = self._new_group(())

    def add(self, lookup: Lookup) -> None:
        """Add one object; raises `Invalid` if there are too many groups."""
        values = tuple([lookup(path) for path in self._aggregate.group])
        key = tuple([_hashable(value) for value in values])
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= self._limit:
                raise too_many_groups(self._limit)
            group = self._groups[key] = self._new_group(values)
        for state, computation in zip(group.states, self._compute, strict=True):
            _add_value(state, computation, lookup)

    def rows(self) -> Iterator[Row]:
        """Yield the groups in the order of their first objects.

        Rows are computed lazily: all of them together may take seconds.
        """
        names = list(self._aggregate.compute)
        for group in self._groups.values():
            results = {n: s.result() for n, s in zip(names, group.states, strict=True)}
            yield Row(group.values, results)

    def _new_group(self, values: tuple[Value | MissingType, ...]) -> _Group:
        return _Group(values, [_STATES[c.function]() for c in self._compute])


def _add_value(state: Any, computation: Computation, lookup: Lookup) -> None:
    value = None if computation.path is None else lookup(computation.path)
    if computation.path is None or not (value is None or value is MISSING):
        state.add(value)


def _hashable(value: Value | MissingType) -> Any:
    # 1 and 1.0 are one group, 1 and true are two.
    return repr(value) if isinstance(value, list | dict) else (kind_of(value), value)


def too_many_groups(limit: int) -> Invalid:
    return _beyond(f"there are more than {limit} groups")


def _too_long() -> Invalid:
    return _beyond(f"a sum of decimals takes more than {DECIMAL_DIGITS} digits")


def _beyond(detail: str) -> Invalid:
    return Invalid(
        f"The aggregate cannot be computed: {detail}.", locations=[Location("/aggregate", detail)]
    )
