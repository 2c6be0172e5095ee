"""Aggregation by the server: numbers of objects and values, exact sums of integers, and extremes.

The stand-in does one command at a time, so the class is aggregated range by range, and the groups
of all ranges are put together here. So are those of one range if a sum may have been beyond 64
bits: it is aggregated once more, each object by itself.

Sums of floats are not exact on a server, and decimals are texts there: both are left to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mediator.model.evaluate import average
from mediator.model.filters import ID, Path
from mediator.model.query import Aggregate, Computation, Function
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.tree import MISSING, Field, MissingType
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.stores.mongo.codec import plain_text
from mediator.stores.mongo.layout import LIVE, Document, Layout
from mediator.stores.mongo.read.reader import RecordSelection
from mediator.stores.mongo.read.spans import spans
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import ComputedGroup, Fragment

__all__ = ["aggregated", "computes"]

_ORDERED: Final = SCALARS - {FieldType.BINARY}
"""Types whose stored forms the server orders as we do."""

_SUMMED: Final = (Function.SUM, Function.AVG)

Key = tuple[Value | MissingType, ...]


def computes(fragment: Fragment, aggregate: Aggregate, *, is_stand_in: bool) -> bool:
    """Whether the server groups and computes all this exactly."""
    fields = [_field(fragment, path) for path in aggregate.group]
    grouped = all(field is not None and _has_form(field, is_stand_in) for field in fields)
    return grouped and all(
        _is_exact(fragment, computation, is_stand_in) for computation in aggregate.compute.values()
    )


def _is_exact(fragment: Fragment, computation: Computation, is_stand_in: bool) -> bool:
    function, path = computation.function, computation.path
    if path is None:
        return function is Function.COUNT
    field = _field(fragment, path)
    if field is None:
        return False
    if function is Function.COUNT:
        return True
    if function in _SUMMED:
        return field.type is FieldType.INTEGER
    return field.type in _ORDERED and _has_form(field, is_stand_in)


def _field(fragment: Fragment, path: Path) -> Field | None:
    """Return the field that a path is, the id included; None: it leads into one."""
    if path == ID:
        return Field(ID[0], FieldType.STRING)
    return fragment.fields.get(path[0]) if len(path) == 1 else None


def _has_form(field: Field, is_stand_in: bool) -> bool:
    """Whether values of the field are compared as we do: the stand-in mistakes large doubles."""
    return field.type in SCALARS and not (is_stand_in and field.type is FieldType.FLOAT)


async def aggregated(
    session: MongoSession,
    layout: Layout,
    selection: RecordSelection,
    aggregate: Aggregate,
    limit: int,
) -> list[ComputedGroup]:
    """Return up to `limit` groups of what is selected; see `port.Aggregating`."""
    grouping = _Grouping(layout, aggregate)
    groups: dict[Key, dict[str, _State]] = {}
    if not aggregate.group:
        grouping.state_of((), groups)
    async for span in spans(session, layout):
        query = selection.within(span | LIVE)
        left_ms = selection.left_ms()
        rows = await _rows(session, layout, query, grouping.stage(), left_ms)
        if any(map(grouping.may_be_beyond, rows)):
            rows = await _rows(session, layout, query, grouping.stage(each=True), left_ms)
        for row in rows:
            grouping.add(row, groups)
        if len(groups) > limit:
            break
    return [
        (key, {name: state.result() for name, state in states.items()})
        for key, states in [*groups.items()][:limit]
    ]


async def _rows(
    session: MongoSession, layout: Layout, query: Document, stage: Document, left_ms: int | None
) -> list[Document]:
    options: dict[str, Any] = {} if left_ms is None else {"maxTimeMS": left_ms}
    pipeline = [{"$match": query}, {"$group": stage}]
    found = await session.collection(layout).aggregate(pipeline, **options)
    return await found.to_list()


@dataclass(slots=True)
class _State:
    """What was computed so far of one group: `number` values, and their sum or their extreme."""

    function: Function
    number: int = 0
    value: Any = None

    def add(self, number: int, value: Any) -> None:
        self.number += number
        if value is not None:
            self.value = value if self.value is None else _JOINED[self.function](self.value, value)

    def result(self) -> Value:
        if self.function is Function.COUNT:
            return self.number
        if self.function is Function.AVG and self.number:
            return average(self.value, self.number)
        return self.value  # type: ignore[no-any-return]


_JOINED: Final[Mapping[Function, Callable[[Any, Any], Any]]] = {
    Function.SUM: lambda one, other: one + other,
    Function.AVG: lambda one, other: one + other,
    Function.MIN: min,
    Function.MAX: max,
}


class _Grouping:
    """One aggregate as a stage of a pipeline, and what becomes of its rows."""

    def __init__(self, layout: Layout, aggregate: Aggregate) -> None:
        self._layout = layout
        self._group = [path[0] for path in aggregate.group]
        self._compute = aggregate.compute

    def stage(self, *, each: bool = False) -> Document:
        """Return the stage; with `each`, every object is a group."""
        # A field that is missing is none of the key's members; one that is null is one.
        key = {f"k{i}": self._expression(name) for i, name in enumerate(self._group)}
        stage: Document = {"_id": key | ({"id": "$_id"} if each else {})}
        for i, computation in enumerate(self._compute.values()):
            stage |= self._accumulators(i, computation)
        return stage

    def _accumulators(self, i: int, computation: Computation) -> Document:
        function, path = computation.function, computation.path
        if path is None:
            return {f"n{i}": {"$sum": 1}}
        value = self._expression(path[0])
        # Missing and null come before everything else in the order of BSON.
        number = {f"n{i}": {"$sum": {"$cond": [{"$gt": [value, None]}, 1, 0]}}}
        if function is Function.COUNT:
            return number
        if function in _SUMMED:
            ends = {f"a{i}": {"$min": value}, f"b{i}": {"$max": value}}
            return number | ends | {f"v{i}": {"$sum": value}}
        return number | {f"v{i}": {f"${function}": value}}

    def _expression(self, name: str) -> str:
        return "$_id" if name == ID[0] else f"${self._layout.paths[name]}"

    def may_be_beyond(self, row: Mapping[str, Any]) -> bool:
        """Whether a sum of a row may have been beyond 64 bits on the way."""
        return any(
            row[f"n{i}"] > 1 and row[f"n{i}"] * max(-row[f"a{i}"], row[f"b{i}"]) > INTEGER_MAX
            for i, computation in enumerate(self._compute.values())
            if computation.function in _SUMMED and row[f"n{i}"]
        )

    def add(self, row: Mapping[str, Any], groups: dict[Key, dict[str, _State]]) -> None:
        states = self.state_of(self._key(row["_id"] or {}), groups)
        for i, (name, computation) in enumerate(self._compute.items()):
            number, value = int(row[f"n{i}"]), row.get(f"v{i}")
            states[name].add(number, self._decoded(computation, value) if number else None)

    def state_of(self, key: Key, groups: dict[Key, dict[str, _State]]) -> dict[str, _State]:
        if key not in groups:
            groups[key] = {name: _State(c.function) for name, c in self._compute.items()}
        return groups[key]

    def _key(self, stored: Mapping[str, Any]) -> Key:
        return tuple(
            self._value(name, stored[f"k{i}"]) if f"k{i}" in stored else MISSING
            for i, name in enumerate(self._group)
        )

    def _decoded(self, computation: Computation, value: Any) -> Any:
        if value is None or computation.path is None:
            return None
        if computation.function in _SUMMED:
            return int(value)
        return self._value(computation.path[0], value)

    def _value(self, name: str, stored: Any) -> Any:
        return plain_text(stored) if name == ID[0] else self._layout.decode(name, stored)
