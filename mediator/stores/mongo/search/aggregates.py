"""Aggregation by the server: numbers of objects and values, exact sums of integers, and extremes.

If a sum can have overflowed 64 bits, the aggregation is repeated with each object as a group, and
combined here. The stand-in executes one command at a time, and reads all documents for each that
groups: so it groups few objects, and only to count them. Otherwise the values are read range by
range.

Sums of floats are not exact on a server, and decimals are texts there: both are left to the caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

from pymongo.asynchronous.command_cursor import AsyncCommandCursor

from mediator.base.offload import offload
from mediator.model.exact import average
from mediator.model.filters import ID
from mediator.model.query import Aggregate, Computation, Function
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import FieldType, Value
from mediator.stores.mongo.codec import plain_text
from mediator.stores.mongo.layout import LIVE, Document, Layout
from mediator.stores.mongo.read.reader import RecordSelection
from mediator.stores.mongo.read.spans import is_short, spans
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import ComputedGroup, Fragment
from mediator.stores.port.search import field_at

__all__ = ["SUMMABLE", "aggregate_groups"]

SUMMABLE: Final = frozenset({FieldType.INTEGER})
"""Types whose sums are exact here."""

_PLAIN: Final = frozenset({FieldType.INTEGER, FieldType.BOOLEAN, FieldType.TIMESTAMP})

_SUMMED: Final = (Function.SUM, Function.AVG)

_LARGE_BATCH: Final = 100
"""Number of rows beyond which combining them can take more than about a millisecond."""

_BATCH: Final = 1_000
"""Number of objects that are combined at a time; there can be millions."""

_Key: TypeAlias = tuple[Value | MissingType, ...]


async def aggregate_groups(
    session: MongoSession,
    layout: Layout,
    selection: RecordSelection,
    aggregate: Aggregate,
    limit: int,
) -> list[ComputedGroup]:
    """Return up to `limit` groups of the selected records; see `port.Aggregating`."""
    grouping = _Grouping(layout, aggregate)
    groups = _Groups(grouping)
    is_exact = not session.is_stand_in or _is_plain(layout.fragment, aggregate)
    if is_exact and await is_short(session, layout):
        rows = _server_rows(session, layout, selection, grouping, limit)
    else:
        rows = _object_rows(session, layout, selection, grouping)
    async for batch in rows:
        await offload(len(batch) > _LARGE_BATCH, groups.add, batch)
        if len(groups) > limit:
            break
    return groups.first(limit)


def _is_plain(fragment: Fragment, aggregate: Aggregate) -> bool:
    """Whether only objects are counted, by keys that the stand-in groups correctly.

    It treats large floats as equal, and texts such as ``$where`` as paths.
    """
    fields = [field_at(fragment, path) for path in aggregate.group]
    plain = all(field is not None and field.type in _PLAIN for field in fields)
    return plain and aggregate.counts_objects


async def _server_rows(
    session: MongoSession,
    layout: Layout,
    selection: RecordSelection,
    grouping: _Grouping,
    limit: int,
) -> AsyncIterator[Sequence[Document]]:
    """Yield a row for each of up to `limit` groups, or for each object if sums can be wrong."""
    query, collection = selection.within(LIVE), session.collection(layout)

    async def rows_of(*stages: Document) -> AsyncCommandCursor[Document]:
        remaining_ms = selection.remaining_ms()
        options: dict[str, Any] = {} if remaining_ms is None else {"maxTimeMS": remaining_ms}
        return await collection.aggregate([{"$match": query}, *stages], **options)

    cursor = await rows_of({"$group": grouping.stage()}, {"$limit": limit})
    rows = await cursor.to_list()
    if not any(map(grouping.may_be_beyond, rows)):
        yield rows
        return
    cursor = await rows_of({"$group": grouping.stage(by_object=True)})
    while rows := await cursor.to_list(_BATCH):
        yield rows


async def _object_rows(
    session: MongoSession, layout: Layout, selection: RecordSelection, grouping: _Grouping
) -> AsyncIterator[Sequence[Document]]:
    """Yield a row for each object, range by range."""
    collection = session.collection(layout)
    async for span in spans(session, layout):
        query, remaining_ms = selection.within(span | LIVE), selection.remaining_ms()
        cursor = collection.find(query, grouping.projection, max_time_ms=remaining_ms)
        yield [grouping.row_of(document) for document in await cursor.to_list()]


class _Grouping:
    """One aggregate, as a stage of a pipeline.

    A row has the key of its group in ``_id``: ``k0`` and so on, without missing values. For each
    computation it has ``n``, the number of values, and ``v``, their sum or extreme; for sums also
    ``a`` and ``b``, the minimum and maximum.
    """

    def __init__(self, layout: Layout, aggregate: Aggregate) -> None:
        self._layout = layout
        self.group = [path[0] for path in aggregate.group]
        self.compute = aggregate.compute

    def stage(self, *, by_object: bool = False) -> Document:
        """Return the stage; `by_object`: every object is a group."""
        key = {f"k{i}": self._expression(name) for i, name in enumerate(self.group)}
        stage: Document = {"_id": key | ({"id": "$_id"} if by_object else {})}
        for i, computation in enumerate(self.compute.values()):
            stage |= self._accumulators(i, computation)
        return stage

    def _accumulators(self, i: int, computation: Computation) -> Document:
        function, path = computation.function, computation.path
        if path is None:
            return {f"n{i}": {"$sum": 1}}
        value = self._expression(path[0])
        # In BSON, missing and null sort before all values.
        number = {f"n{i}": {"$sum": {"$cond": [{"$gt": [value, None]}, 1, 0]}}}
        if function is Function.COUNT:
            return number
        if function in _SUMMED:
            extremes = {f"a{i}": {"$min": value}, f"b{i}": {"$max": value}}
            return number | extremes | {f"v{i}": {"$sum": value}}
        return number | {f"v{i}": {f"${function}": value}}

    def _expression(self, name: str) -> str:
        return "$_id" if name == ID[0] else f"${self._layout.paths[name]}"

    def may_be_beyond(self, row: Mapping[str, Any]) -> bool:
        """Whether a sum in a row of `stage` can have overflowed 64 bits on the way."""
        return any(
            row[f"n{i}"] > 1 and row[f"n{i}"] * max(-row[f"a{i}"], row[f"b{i}"]) > INTEGER_MAX
            for i, computation in enumerate(self.compute.values())
            if computation.function in _SUMMED and row[f"n{i}"]
        )

    @property
    def projection(self) -> Document:
        """The projection that `row_of` needs."""
        paths = [c.path[0] for c in self.compute.values() if c.path is not None]
        names = {*self.group, *paths} - {ID[0]}
        return {"_id": 1} | {self._layout.paths[name]: 1 for name in names}

    def row_of(self, document: Mapping[str, Any]) -> Document:
        """Return the row of an object as a group."""
        values = self._layout.stored_values(document) | {ID[0]: document["_id"]}
        key = {f"k{i}": values[name] for i, name in enumerate(self.group) if name in values}
        row: Document = {"_id": key}
        for i, computation in enumerate(self.compute.values()):
            value = 1 if computation.path is None else values.get(computation.path[0])
            row |= {f"n{i}": int(value is not None), f"v{i}": value}
        return row

    def key_of(self, row: Mapping[str, Any]) -> _Key:
        stored = row["_id"]
        return tuple(
            [
                self._value(name, stored[f"k{i}"]) if f"k{i}" in stored else MISSING
                for i, name in enumerate(self.group)
            ]
        )

    def value_of(self, computation: Computation, stored: Any) -> Any:
        if computation.path is None or computation.function is Function.COUNT:
            return None
        if computation.function in _SUMMED:
            return int(stored)
        return self._value(computation.path[0], stored)

    def _value(self, name: str, stored: Any) -> Any:
        return plain_text(stored) if name == ID[0] else self._layout.decode(name, stored)


@dataclass(slots=True)
class _State:
    """The accumulated state of a group: the number of values, and their sum or extreme."""

    function: Function
    number: int = 0
    value: Any = None

    def add(self, number: int, value: Any) -> None:
        self.number += number
        if value is not None:
            self.value = value if self.value is None else _COMBINE[self.function](self.value, value)

    def result(self) -> Any:
        if self.function is Function.COUNT:
            return self.number
        if self.function is Function.AVG and self.number:
            return average(self.value, self.number)
        return self.value


_COMBINE: Final[Mapping[Function, Callable[[Any, Any], Any]]] = {
    Function.SUM: lambda a, b: a + b,
    Function.AVG: lambda a, b: a + b,
    Function.MIN: min,
    Function.MAX: max,
}


class _Groups:
    """The groups of all rows so far; a group of all objects exists even without objects."""

    def __init__(self, grouping: _Grouping) -> None:
        self._grouping = grouping
        self._compute = list(grouping.compute.values())
        self._states: dict[_Key, list[_State]] = {}
        if not grouping.group:
            self._states[()] = self._new()

    def __len__(self) -> int:
        return len(self._states)

    def _new(self) -> list[_State]:
        return [_State(computation.function) for computation in self._compute]

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            key = self._grouping.key_of(row)
            states = self._states.get(key)
            if states is None:
                states = self._states[key] = self._new()
            for i, (state, computation) in enumerate(zip(states, self._compute, strict=True)):
                number = int(row[f"n{i}"])
                if number:
                    value = self._grouping.value_of(computation, row.get(f"v{i}"))
                    state.add(number, value)

    def first(self, limit: int) -> list[ComputedGroup]:
        names = list(self._grouping.compute)
        return [
            (key, {name: state.result() for name, state in zip(names, states, strict=True)})
            for key, states in islice(self._states.items(), limit)
        ]
