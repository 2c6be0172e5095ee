"""The nodes of a view's network (Rete): each consumes changes of tuples and emits changes.

A change is a tuple with a count, negative for removals: tuples form a multiset everywhere in the
network. A node returns a generator, so that each tuple passes the whole network before the next.
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
from mediator.views.cells import Tuple, box, cell_of, unbox
from mediator.views.extremes import Extreme
from mediator.views.view import Source

__all__ = [
    "MAX_GROUPS",
    "MAX_RESULT_BYTES",
    "MAX_ROWS",
    "MAX_VALUES",
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

MAX_GROUPS: Final = 10_000
MAX_ROWS: Final = 10_000
"""Maximum distinct rows of a result."""

MAX_RESULT_BYTES: Final = 8 * 2**20
"""Maximum bytes of a result's rows, as JSON."""

MAX_VALUES: Final = 1_000_000
"""Maximum values in the minima and maxima of a view."""

Delta: TypeAlias = Iterable[tuple[Tuple, int]]
_Key: TypeAlias = tuple[Any, ...]


def too_large(detail: str) -> Invalid:
    return Invalid(f"The view is too large: {detail}.")


class InputNode:
    """Makes tuples of a source's objects."""

    def __init__(self, source: Source) -> None:
        self._test = compile_filter(source.filter) if source.filter is not None else None
        self._cells = [(target.path, cell_of(target)) for target in source.values.values()]

    def change(self, before: Lookup | None, after: Lookup | None) -> list[tuple[Tuple, int]]:
        """Return the changes of an object's tuple; None: the object does not exist."""
        old, new = self._tuple(before), self._tuple(after)
        if old == new:
            return []
        # Additions first, so that a tuple with a partner before and after never lacks one.
        return [(row, n) for row, n in ((new, 1), (old, -1)) if row is not None]

    def _tuple(self, lookup: Lookup | None) -> Tuple | None:
        if lookup is None or not (self._test is None or self._test(lookup)):
            return None
        return tuple([make(lookup(path)) for path, make in self._cells])


class _Memory:
    """A multiset of tuples by their join keys."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self._indexes = indexes
        self._buckets: dict[_Key, dict[Tuple, int]] = {}
        self.size = 0

    def key(self, row: Tuple) -> _Key | None:
        """Return the join key of a tuple; None: a value of it equals nothing."""
        keys = [_joinable(unbox(row[index])) for index in self._indexes]
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
    """As in SQL, null equals nothing; neither do missing and unordered values."""
    return None if value is None or value is MISSING else key_of(value)


class _TwoInputs:
    def __init__(self, left: Sequence[int], right: Sequence[int]) -> None:
        self._left = _Memory(left)
        self._right = _Memory(right)

    @property
    def size(self) -> int:
        """Tuples in both memories."""
        return self._left.size + self._right.size


class JoinNode(_TwoInputs):
    """Emits a tuple for each matching pair, the left one's cells first."""

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
    """Passes left tuples without a matching right tuple."""

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
            was_blocked = bool(self._right.at(key))
            self._right.add(key, partner, times)
            if bool(self._right.at(key)) is not was_blocked:
                for row, count in self._left.at(key).items():
                    yield row, count if was_blocked else -count


class SelectionNode:
    """Passes tuples that match a filter; `layout` is the index of each path in a tuple."""

    def __init__(self, filter_: Filter, layout: Mapping[Path, int]) -> None:
        self._test = compile_filter(filter_)
        self._layout = layout

    def apply(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        layout = self._layout
        for row, times in delta:
            if self._test(lambda path, row=row: unbox(row[layout[path]])):  # type: ignore[misc]
                yield row, times


class ProjectionNode:
    """Keeps some cells of each tuple, with the number of tuples (bag semantics)."""

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
    """The tuples of one group: their number, and the state of each computation."""

    __slots__ = ("cells", "remembered", "size", "states")

    def __init__(self, cells: Tuple, compute: Iterable[Computation]) -> None:
        self.cells = cells
        self.size = 0
        self.remembered = 0
        self.states = [_STATES[computation.function]() for computation in compute]


class AggregationNode:
    """Groups tuples; emits one tuple per group, of its values and its computed results."""

    def __init__(self, aggregate: Aggregate, layout: Mapping[Path, int]) -> None:
        self._aggregate = aggregate
        self._group_indexes = [layout[path] for path in aggregate.group]
        self._compute = list(aggregate.compute.values())
        self._value_indexes = [None if c.path is None else layout[c.path] for c in self._compute]
        self._having = compile_filter(aggregate.having) if aggregate.having is not None else None
        self._groups: dict[Tuple, _Group] = {}
        self._remembered = 0

    def initial(self) -> Delta:
        """Return the result without tuples: without grouping, one group even if it is empty."""
        if self._group_indexes:
            return []
        self._groups[()] = _Group((), self._compute)
        row = self._row(())
        return [] if row is None else [(row, 1)]

    def apply(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        before: dict[Tuple, Tuple | None] = {}
        for row, times in delta:
            cells = tuple([row[index] for index in self._group_indexes])
            if cells not in before:
                before[cells] = self._row(cells)
            self._add(cells, row, times)
        self._check_values(before)
        for cells, old in before.items():
            new = self._row(cells)
            if new != old:
                yield from [(row, n) for row, n in ((new, 1), (old, -1)) if row is not None]

    def _add(self, cells: Tuple, row: Tuple, times: int) -> None:
        group = self._groups.get(cells)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                raise too_many_groups(MAX_GROUPS)
            group = self._groups[cells] = _Group(cells, self._compute)
        group.size += times
        for state, index in zip(group.states, self._value_indexes, strict=True):
            value = None if index is None else unbox(row[index])
            if index is None or not (value is None or value is MISSING):
                state.add(value, times)
        if not group.size and self._group_indexes:
            self._remembered -= group.remembered
            del self._groups[cells]

    def _check_values(self, changed: Iterable[Tuple]) -> None:
        """Raise `Invalid` if the extremes hold too many values: joins can multiply them."""
        for cells in changed:
            if (group := self._groups.get(cells)) is not None:
                size = sum(state.size for state in group.states if isinstance(state, Extreme))
                self._remembered += size - group.remembered
                group.remembered = size
        if self._remembered > MAX_VALUES:
            raise too_large(f"its minima and maxima remember more than {MAX_VALUES} values")

    def _row(self, cells: Tuple) -> Tuple | None:
        """Return the tuple of a group; None: no such group, or it does not match the filter."""
        group = self._groups.get(cells)
        if group is None:
            return None
        results = [state.result() for state in group.states]
        if self._having is not None:
            computed = dict(zip(self._aggregate.compute, results, strict=True))
            row = Row(tuple(map(unbox, group.cells)), computed)
            if not self._having(lookup_of_row(self._aggregate, row)):
                return None
        return *group.cells, *map(_hashable, results)


def _hashable(value: Any) -> Any:
    return box(value) if isinstance(value, list | dict) else value


RowChange: TypeAlias = tuple[bytes, int, int]
"""A row of the result as JSON, the change of its count, and its count now."""


class ProductionNode:
    """The result: a multiset of rows, and its changes since the last `take`.

    `encode` encodes the cells of a row as JSON.
    """

    def __init__(self, encode: Callable[[Tuple], bytes]) -> None:
        self._encode = encode
        self._rows: dict[Tuple, tuple[bytes, int]] = {}
        self._changes: dict[Tuple, int] = {}
        self._bytes = 0

    def apply(self, delta: Delta) -> None:
        changes = self._changes
        for row, times in delta:
            if count := changes.get(row, 0) + times:
                changes[row] = count
            else:
                changes.pop(row, None)
        # All former rows may go, and as many come. Twice that, as an object in several sources is
        # updated in each of them in turn, and some intermediate rows belong to neither state.
        if len(changes) > 4 * MAX_ROWS:
            raise _too_many_rows()

    @property
    def rows(self) -> dict[bytes, int]:
        """Rows as JSON, with their counts, as of the last `take`."""
        return dict(self._rows.values())

    def take(self) -> list[RowChange]:
        """Return the changes since the last time; raises `Invalid` if the result is too large."""
        changes = [self._take(row, times) for row, times in self._changes.items()]
        self._changes = {}
        if len(self._rows) > MAX_ROWS:
            raise _too_many_rows()
        if self._bytes > MAX_RESULT_BYTES:
            raise _too_many_bytes()
        return changes

    def _take(self, row: Tuple, times: int) -> RowChange:
        # A row keeps its JSON until it is gone: equal numbers can be written differently.
        text, former = self._rows.get(row, (b"", 0))
        text = text or self._encode(row)
        count = former + times
        self._bytes += len(text) * ((count != 0) - (former != 0))
        if self._bytes > 2 * MAX_RESULT_BYTES:  # additions may precede removals
            raise _too_many_bytes()
        if count:
            self._rows[row] = text, count
        else:
            del self._rows[row]
        return text, times, count


def _too_many_rows() -> Invalid:
    return too_large(f"it has more than {MAX_ROWS} rows")


def _too_many_bytes() -> Invalid:
    return too_large(f"its rows have more than {MAX_RESULT_BYTES} bytes")
