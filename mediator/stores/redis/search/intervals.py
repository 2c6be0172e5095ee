"""Intervals of an index, and what a condition leaves of it; bounds are values, not yet members.

An index is ordered by (value, id): missing, null, values. A `Cut` lies between two of its
members, and an interval is what lies between two cuts. The ids themselves are such an index too,
without missing and null. Of a compound index, intervals are those of one field among the members
that have the same values of the fields before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mediator.model.filters import Between, Compare, Comparison, Exists, Filter, In, Not, Path
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value

__all__ = [
    "EVERYTHING",
    "VALUES",
    "Cut",
    "Interval",
    "beyond",
    "common",
    "is_point",
    "past",
    "point",
    "position",
    "selected",
    "subject",
    "value_of",
]


@dataclass(frozen=True, slots=True, order=True)
class Cut:
    """A position in an index, between two members.

    Attributes:
        key: How cuts compare: the state (missing, null, value, end), which alone is where the state
            begins; the value as it sorts, 0 before and 1 behind its members. At a member this is
            followed by as much for each further field of the index, and by the id.
        values: The values themselves.
    """

    key: tuple[Any, ...]
    values: tuple[Value | MissingType, ...] = field(default=(), compare=False)


Interval: TypeAlias = tuple[Cut, Cut]
"""From one cut to another."""

_MISSING, _NULL, _VALUES, _END = (Cut((state,)) for state in range(4))
EVERYTHING: Final[Interval] = (_MISSING, _END)
VALUES: Final[Interval] = (_VALUES, _END)

_BEFORE, _BEHIND = 0, 1


def subject(condition: Filter) -> Path | None:
    """Return the path that a condition is about, if it may leave intervals of its index."""
    match condition:
        case Compare(_, path) | Between(path) | In(path) | Exists(path) | Not(Exists(path)):
            return path
    return None


def selected(condition: Filter) -> Sequence[Interval] | None:
    """Return the intervals that a condition is equivalent to, in ascending order.

    None if it has none, or if they leave nearly everything.
    """
    match condition:
        case Compare(Comparison.EQ, _, value):
            return [point(value)]
        case Compare(comparison, _, value) if comparison in _SIDES:
            return [_SIDES[comparison](value)]
        case Between(_, low, high):
            return _nonempty([(_cut(low, _BEFORE), _cut(high, _BEHIND))])
        case In(_, values):
            return sorted(set(map(point, values)))
        case Exists():
            return [(_NULL, _END)]
        case Not(Exists()):
            return [(_MISSING, _NULL)]
    return None


def common(some: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return what is in both; each is in ascending order and does not overlap itself."""
    ones, twos = list(some), list(others)
    shared: list[Interval] = []
    one = two = 0
    while one < len(ones) and two < len(twos):
        a, b = ones[one], twos[two]
        shared.append((max(a[0], b[0]), min(a[1], b[1])))
        if a[1] < b[1]:
            one += 1
        else:
            two += 1
    return _nonempty(shared)


def beyond(intervals: Iterable[Interval], cut: Cut, *, descending: bool) -> list[Interval]:
    rest = (_MISSING, cut) if descending else (cut, _END)
    return common(intervals, [rest])


def position(values: Sequence[Value | MissingType], id_: str) -> Cut:
    """Return the position of the member with some values, of an index's fields in turn."""
    key = tuple(part for value in values for part in _position_key(value))
    return Cut((*key, _sortable(id_)), tuple(values))


def _position_key(value: Value | MissingType) -> tuple[Any, ...]:
    if value is None or isinstance(value, MissingType):
        state = _NULL if value is None else _MISSING
        # What stands for a value keeps the id at its index in the key.
        return (*state.key, b"", _BEFORE)
    return _cut(value, _BEFORE).key


def past(id_: str, *, descending: bool) -> Cut:
    """Return the position after an id, in the index of the ids."""
    return _cut(id_, _BEFORE if descending else _BEHIND)


def value_of(interval: Interval) -> Value | MissingType:
    """Return the value that all members of an interval have, which is a point."""
    low = interval[0]
    return low.values[0] if low.values else (MISSING if low == _MISSING else None)


def is_point(interval: Interval) -> bool:
    """Whether all members have the same value, or are all null, or all missing."""
    low, high = interval
    if len(low.key) > 1:
        return high.key[:2] == low.key[:2]
    return high.key == (low.key[0] + 1,) and low < _VALUES


def point(value: Value) -> Interval:
    if value is None:
        return (_NULL, _VALUES)
    return (_cut(value, _BEFORE), _cut(value, _BEHIND))


def _cut(value: Value, side: int) -> Cut:
    return Cut((*_VALUES.key, _sortable(value), side), (value,))


def _sortable(value: Value) -> Any:
    # A text that is no Unicode is refused where it is packed.
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _nonempty(intervals: Iterable[Interval]) -> list[Interval]:
    return [interval for interval in intervals if interval[0] < interval[1]]


_SIDES: Final = {
    Comparison.LT: lambda value: (_VALUES, _cut(value, _BEFORE)),
    Comparison.LE: lambda value: (_VALUES, _cut(value, _BEHIND)),
    Comparison.GT: lambda value: (_cut(value, _BEHIND), _END),
    Comparison.GE: lambda value: (_cut(value, _BEFORE), _END),
}
