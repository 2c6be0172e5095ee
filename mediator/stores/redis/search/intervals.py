"""Intervals of an index, and what a condition leaves of it; bounds are values, not yet members.

An index is ordered by (value, id): missing, null, values. A `Cut` lies between two of its
members, and an interval is what lies between two cuts. The ids themselves are such an index too,
without missing and null.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mediator.model.filters import Between, Compare, Comparison, Exists, Filter, In, Not, Path
from mediator.schema.tree import MissingType
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
    "position",
    "selected",
    "subject",
    "within",
]


@dataclass(frozen=True, slots=True, order=True)
class Cut:
    """A position in an index, between two members.

    Attributes:
        key: How cuts compare: the state (missing, null, value, end), which alone is where the state
            begins; the value as it sorts, 0 before and 1 behind its members; the id of a member.
        value: The value itself.
    """

    key: tuple[Any, ...]
    value: Value = field(default=None, compare=False)


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
            return [_point(value)]
        case Compare(comparison, _, value) if comparison in _SIDES:
            return [_SIDES[comparison](value)]
        case Between(_, low, high):
            return _nonempty([(_cut(low, _BEFORE), _cut(high, _BEHIND))])
        case In(_, values):
            return sorted(set(map(_point, values)))
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


def position(value: Value | MissingType, id_: str) -> Cut:
    if isinstance(value, MissingType):
        return within((_MISSING, _NULL), id_)
    return within(_point(value), id_)


def past(id_: str, *, descending: bool) -> Cut:
    """Return the position after an id, in the index of the ids."""
    return _cut(id_, _BEFORE if descending else _BEHIND)


def within(point: Interval, id_: str) -> Cut:
    """Return the position of the member with an id, among those of one value."""
    low = point[0]
    # Null and missing have no value: what stands for it keeps the id at its index in the key.
    key = low.key if len(low.key) > 1 else (*low.key, b"", _BEFORE)
    return Cut((*key, _sortable(id_)), low.value)


def is_point(interval: Interval) -> bool:
    """Whether all members have the same value, or are all null, or all missing."""
    low, high = interval
    if len(low.key) > 1:
        return high.key[:2] == low.key[:2]
    return high.key == (low.key[0] + 1,) and low < _VALUES


def _point(value: Value) -> Interval:
    if value is None:
        return (_NULL, _VALUES)
    return (_cut(value, _BEFORE), _cut(value, _BEHIND))


def _cut(value: Value, side: int) -> Cut:
    return Cut((*_VALUES.key, _sortable(value), side), value)


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
