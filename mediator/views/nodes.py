"""The nodes of a view's network (Rete): each takes changes of tuples, and makes changes of its own.

A change is a tuple with how many of it come, or, below zero, go: the tuples at every place of the
network are a multiset. What a node makes is a generator, so that each tuple runs through the whole
network before the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mediator.base.errors import Invalid
from mediator.model.evaluate import Lookup, compile_filter, key_of
from mediator.model.filters import Filter, Path
from mediator.model.query import Aggregate, Computation, Function
from mediator.query.aggregation import Average, Count, Row, Sum, lookup_of_row, too_many_groups
from mediator.schema.tree import MISSING
from mediator.views.cells import Tuple, boxed, cell_of, unboxed
from mediator.views.extremes import Extreme
from mediator.views.view import Source

__all__ = [
    "MOST_GROUPS",
    "MOST_RESULT_BYTES",
    "MOST_ROWS",
    "MOST_VALUES",
    "AggregationNode",
    "AntijoinNode",
    "Delta",
    "InputNode",
    "JoinNode",
    "ProductionNode",
    "ProjectionNode",
    "RowChange",
    "SelectionNode",
    "too_large",
]

MOST_GROUPS: Final = 10_000
MOST_ROWS: Final = 10_000
"""Different rows of a result."""

MOST_RESULT_BYTES: Final = 8 * 2**20
"""Bytes of the rows of a result, as JSON."""

MOST_VALUES: Final = 1_000_000
"""Values that the minima and maxima of a view remember."""

Delta: TypeAlias = Iterable[tuple[Tuple, int]]
_Key: TypeAlias = tuple[Any, ...]


def too_large(detail: str) -> Invalid:
    return Invalid(f"The view is too large: {detail}.")


class InputNode:
    """Makes tuples of the objects of a source."""

    def __init__(self, source: Source) -> None:
        self._test = compile_filter(source.filter) if source.filter is not None else None
        self._cells = [(target.path, cell_of(target)) for target in source.values.values()]

    def change(self, before: Lookup | None, after: Lookup | None) -> list[tuple[Tuple, int]]:
        """Return how the tuple of an object changes; None: the object is not there."""
        gone, new = self._tuple(before), self._tuple(after)
        if gone == new:
            return []
        # What comes is first, so that what has a partner before and after never lacks one.
        return [(each, n) for each, n in ((new, 1), (gone, -1)) if each is not None]

    def _tuple(self, lookup: Lookup | None) -> Tuple | None:
        if lookup is None or not (self._test is None or self._test(lookup)):
            return None
        return tuple([make(lookup(path)) for path, make in self._cells])


class _Memory:
    """A multiset of tuples, by the values that they are joined on."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self._indexes = indexes
        self._buckets: dict[_Key, dict[Tuple, int]] = {}
        self.size = 0

    def key(self, row: Tuple) -> _Key | None:
        """Return the values that a tuple is joined on; None: one of them equals nothing."""
        keys = [_joinable(unboxed(row[index])) for index in self._indexes]
        return None if None in keys else tuple(keys)

    def at(self, key: _Key) -> Mapping[Tuple, int]:
        return self._buckets.get(key, {})

    def add(self, key: _Key, row: Tuple, times: int) -> None:
        bucket = self._buckets.setdefault(key, {})
        count = bucket.get(row, 0) + times
        self.size += (count != 0) - (row in bucket)
        if count:
            bucket[row] = count
        else:
            bucket.pop(row, None)
            if not bucket:
                del self._buckets[key]


def _joinable(value: Any) -> tuple[int, Any] | None:
    """Null equals nothing, as in SQL; nor does what is missing, or has no order."""
    return None if value is None or value is MISSING else key_of(value)


class _TwoInputs:
    def __init__(self, left: Sequence[int], right: Sequence[int]) -> None:
        self._left = _Memory(left)
        self._right = _Memory(right)

    @property
    def size(self) -> int:
        """Tuples that are remembered."""
        return self._left.size + self._right.size


class JoinNode(_TwoInputs):
    """Makes a tuple of each pair that agrees, the left one's cells first."""

    def left(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        for row, times in delta:
            if (key := self._left.key(row)) is not None:
                self._left.add(key, row, times)
                for partner, count in self._right.at(key).items():
                    yield row + partner, times * count

    def right(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        for partner, times in delta:
            if (key := self._right.key(partner)) is not None:
                self._right.add(key, partner, times)
                for row, count in self._left.at(key).items():
                    yield row + partner, times * count


class AntijoinNode(_TwoInputs):
    """Passes the tuples of the left that agree with none of the right."""

    def left(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        for row, times in delta:
            key = self._left.key(row)
            if key is not None:
                self._left.add(key, row, times)
            if key is None or not self._right.at(key):
                yield row, times

    def right(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        for partner, times in delta:
            if (key := self._right.key(partner)) is None:
                continue
            blocked = bool(self._right.at(key))
            self._right.add(key, partner, times)
            if bool(self._right.at(key)) is not blocked:
                for row, count in self._left.at(key).items():
                    yield row, count if blocked else -count


class SelectionNode:
    """Passes the tuples that meet a filter; `layout` says where a tuple has the value of a path."""

    def __init__(self, filter_: Filter, layout: Mapping[Path, int]) -> None:
        self._test = compile_filter(filter_)
        self._layout = layout

    def apply(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        layout = self._layout
        for row, times in delta:
            if self._test(lambda path, row=row: unboxed(row[layout[path]])):  # type: ignore[misc]
                yield row, times


class ProjectionNode:
    """Keeps some cells of each tuple; how many tuples become one is kept (bag semantics)."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self._indexes = indexes

    def apply(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        for row, times in delta:
            yield tuple([row[index] for index in self._indexes]), times


_STATES: Final[Mapping[Function, Callable[[], Any]]] = {
    Function.COUNT: Count,
    Function.SUM: Sum,
    Function.AVG: Average,
    Function.MIN: lambda: Extreme(greatest=False),
    Function.MAX: lambda: Extreme(greatest=True),
}


class _Group:
    """The tuples of one group: how many there are, and the state of each computation."""

    __slots__ = ("cells", "remembered", "size", "states")

    def __init__(self, cells: Tuple, compute: Iterable[Computation]) -> None:
        self.cells = cells
        self.size = 0
        self.remembered = 0
        self.states = [_STATES[each.function]() for each in compute]


class AggregationNode:
    """Keeps groups of tuples; each is one tuple of its values and of what is computed over it."""

    def __init__(self, aggregate: Aggregate, layout: Mapping[Path, int]) -> None:
        self._aggregate = aggregate
        self._grouped = [layout[path] for path in aggregate.group]
        self._compute = list(aggregate.compute.values())
        self._computed = [None if c.path is None else layout[c.path] for c in self._compute]
        self._having = compile_filter(aggregate.having) if aggregate.having is not None else None
        self._groups: dict[Tuple, _Group] = {}
        self._remembered = 0

    def initial(self) -> Delta:
        """Return what there is without any tuple: all tuples are a group, even if it is empty."""
        if self._grouped:
            return []
        self._groups[()] = _Group((), self._compute)
        row = self._row(())
        return [] if row is None else [(row, 1)]

    def apply(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        before: dict[Tuple, Tuple | None] = {}
        for row, times in delta:
            cells = tuple([row[index] for index in self._grouped])
            if cells not in before:
                before[cells] = self._row(cells)
            self._add(cells, row, times)
        self._check_values(before)
        for cells, gone in before.items():
            new = self._row(cells)
            if new != gone:
                yield from [(each, n) for each, n in ((new, 1), (gone, -1)) if each is not None]

    def _add(self, cells: Tuple, row: Tuple, times: int) -> None:
        group = self._groups.get(cells)
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                raise too_many_groups(MOST_GROUPS)
            group = self._groups[cells] = _Group(cells, self._compute)
        group.size += times
        for state, index in zip(group.states, self._computed, strict=True):
            value = None if index is None else unboxed(row[index])
            if index is None or not (value is None or value is MISSING):
                state.add(value, times)
        if not group.size and self._grouped:
            self._remembered -= group.remembered
            del self._groups[cells]

    def _check_values(self, changed: Iterable[Tuple]) -> None:
        """Raises `Invalid` if the extremes remember too much: joins make more than there is."""
        for cells in changed:
            if (group := self._groups.get(cells)) is not None:
                size = sum(each.size for each in group.states if isinstance(each, Extreme))
                self._remembered += size - group.remembered
                group.remembered = size
        if self._remembered > MOST_VALUES:
            raise too_large(f"its minima and maxima remember more than {MOST_VALUES} values")

    def _row(self, cells: Tuple) -> Tuple | None:
        """Return the tuple of a group; None: it is not there, or does not meet the filter."""
        group = self._groups.get(cells)
        if group is None:
            return None
        results = [state.result() for state in group.states]
        if self._having is not None:
            computed = dict(zip(self._aggregate.compute, results, strict=True))
            row = Row(tuple(map(unboxed, group.cells)), computed)
            if not self._having(lookup_of_row(self._aggregate, row)):
                return None
        return *group.cells, *map(_hashable, results)


def _hashable(value: Any) -> Any:
    return boxed(value) if isinstance(value, list | dict) else value


RowChange: TypeAlias = tuple[bytes, int, int]
"""A row of the result as JSON, by how many it changed, and how many there are now."""


class ProductionNode:
    """The result: a multiset of rows, and how it has changed since that was last taken.

    `encode` makes JSON of the cells of a row.
    """

    def __init__(self, encode: Callable[[Tuple], bytes]) -> None:
        self._encode = encode
        self._rows: dict[Tuple, tuple[bytes, int]] = {}
        self._changed: dict[Tuple, int] = {}
        self._bytes = 0

    def apply(self, delta: Delta) -> None:
        changed = self._changed
        for row, times in delta:
            if count := changed.get(row, 0) + times:
                changed[row] = count
            else:
                changed.pop(row, None)
        # All rows of before may go, and as many come. Twice that, as an object that is several
        # sources is updated in one after the other, and some rows are those of neither state.
        if len(changed) > 4 * MOST_ROWS:
            raise _too_many_rows()

    @property
    def rows(self) -> dict[bytes, int]:
        """Rows as JSON, with how many there are of each, when changes were last taken."""
        return dict(self._rows.values())

    def take(self) -> list[RowChange]:
        """Return the changes since the last time; raises `Invalid` if the result is too large."""
        changes = [self._take(row, times) for row, times in self._changed.items()]
        self._changed = {}
        if len(self._rows) > MOST_ROWS:
            raise _too_many_rows()
        if self._bytes > MOST_RESULT_BYTES:
            raise _too_many_bytes()
        return changes

    def _take(self, row: Tuple, times: int) -> RowChange:
        # A row keeps its text until it is gone: equal numbers may be written differently.
        text, before = self._rows.get(row, (b"", 0))
        text = text or self._encode(row)
        count = before + times
        self._bytes += len(text) * ((count != 0) - (before != 0))
        if self._bytes > 2 * MOST_RESULT_BYTES:  # rows that come may precede those that go
            raise _too_many_bytes()
        if count:
            self._rows[row] = text, count
        else:
            del self._rows[row]
        return text, times, count


def _too_many_rows() -> Invalid:
    return too_large(f"it has more than {MOST_ROWS} rows")


def _too_many_bytes() -> Invalid:
    return too_large(f"its rows have more than {MOST_RESULT_BYTES} bytes")
