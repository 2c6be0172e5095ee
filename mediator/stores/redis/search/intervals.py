"""Intervals of an index that a condition selects; bounds are values, not yet members.

An index is ordered by (value, id): missing, null, values. A `Cut` lies between two of its members,
and an interval between two cuts. The ids are also such an index, without missing and null. In a
compound index, intervals are those of one field among the members with the same values of the
fields before it.
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
        key: The sort key of the cut: the state (missing, null, value, end), which alone is where
            the state begins; then the sortable value, and 0 before or 1 after its members. At a
            member these are followed by the same for each further field of the index, and the id.
        values: The values themselves.
    """

    key: tuple[Any, ...]
    values: tuple[Value | MissingType, ...] = field(default=(), compare=False)


Interval: TypeAlias = tuple[Cut, Cut]
"""The members between two cuts."""

_MISSING, _NULL, _VALUES, _END = (Cut((state,)) for state in range(4))
EVERYTHING: Final[Interval] = (_MISSING, _END)
VALUES: Final[Interval] = (_VALUES, _END)

_BEFORE, _BEHIND = 0, 1


def subject(condition: Filter) -> Path | None:
    """Return the path of a condition, if it can select intervals of an index."""
    match condition:
        case Compare(_, path) | Between(path) | In(path) | Exists(path) | Not(Exists(path)):
            return path
    return None


def selected(condition: Filter) -> Sequence[Interval] | None:
    """Return the intervals equivalent to a condition, in ascending order.

    None if there are none, or if they select nearly everything.
    """
    match condition:
        case Compare(Comparison.EQ, _, value):
            return [point(value)]
        case Compare(comparison, _, value) if comparison in _HALF_LINES:
            return [_HALF_LINES[comparison](value)]
        case Between(_, low, high):
            return _nonempty([(_cut(low, _BEFORE), _cut(high, _BEHIND))])
        case In(_, values):
            return sorted(set(map(point, values)))
        case Exists():
            return [(_NULL, _END)]
        case Not(Exists()):
            return [(_MISSING, _NULL)]
    return None


def common(left: Iterable[Interval], right: Iterable[Interval]) -> list[Interval]:
    """Return the intersection of two ascending lists of disjoint intervals."""
    left_list, right_list = list(left), list(right)
    intersections: list[Interval] = []
    i = j = 0
    while i < len(left_list) and j < len(right_list):
        a, b = left_list[i], right_list[j]
        intersections.append((max(a[0], b[0]), min(a[1], b[1])))
        if a[1] < b[1]:
            i += 1
        else:
            j += 1
    return _nonempty(intersections)


def beyond(intervals: Iterable[Interval], cut: Cut, *, descending: bool) -> list[Interval]:
    remainder = (_MISSING, cut) if descending else (cut, _END)
    return common(intervals, [remainder])


def position(values: Sequence[Value | MissingType], id_: str) -> Cut:
    """Return the position of the member with these values of the index's fields, in order."""
    key = tuple(part for value in values for part in _position_key(value))
    return Cut((*key, _sortable(id_)), tuple(values))


def _position_key(value: Value | MissingType) -> tuple[Any, ...]:
    if value is None or isinstance(value, MissingType):
        state = _NULL if value is None else _MISSING
        # A placeholder for the value keeps the id at its index in the key.
        return (*state.key, b"", _BEFORE)
    return _cut(value, _BEFORE).key


def past(id_: str, *, descending: bool) -> Cut:
    """Return the position after an id in the index of ids."""
    return _cut(id_, _BEFORE if descending else _BEHIND)


def value_of(interval: Interval) -> Value | MissingType:
    """Return the value of all members of an interval that is a point."""
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
    # Invalid Unicode is refused where it is packed.
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _nonempty(intervals: Iterable[Interval]) -> list[Interval]:
    return [interval for interval in intervals if interval[0] < interval[1]]


_HALF_LINES: Final = {
    Comparison.LT: lambda value: (_VALUES, _cut(value, _BEFORE)),
    Comparison.LE: lambda value: (_VALUES, _cut(value, _BEHIND)),
    Comparison.GT: lambda value: (_cut(value, _BEHIND), _END),
    Comparison.GE: lambda value: (_cut(value, _BEFORE), _END),
}
