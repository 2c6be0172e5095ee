"""Checking tuples against the declaration of their stream, each mistake with its location."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

import orjson

from mediator.base.errors import Location
from mediator.base.suggestions import did_you_mean
from mediator.event_streams.port import EventStream, NewTuple
from mediator.schema.errors import invalid, token
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.types import FieldType

__all__ = ["LARGEST_TUPLE", "LONGEST_AHEAD_S", "MOST_AT_ONCE", "read_tuples"]

MOST_AT_ONCE: Final = 10_000
"""Tuples of a batch."""

LARGEST_TUPLE: Final = 2**15
"""Bytes of its values as JSON."""

LONGEST_AHEAD_S: Final = 86_400.0
"""By how much the time of a tuple may be ahead of the clock here."""

_HEAVY: Final = 2**14
"""Bytes of values that are read at once, which takes some hundred microseconds."""

_TUPLE_WEIGHT: Final = 64
"""By how many more bytes each tuple counts."""

_MISTAKE_WEIGHT: Final = 2**11
"""And each mistake: the name that may be meant is looked for among all attributes."""

_INT64: Final = 2**63
_MEMBERS: Final = frozenset({"time_s", "values"})
_NUMBERS: Final = frozenset({int, float})
_NULL: Final = type(None)
_SCALARS: Final = frozenset({str, int, float, bool, _NULL})
_OF_TYPE: Final[Mapping[str, frozenset[type]]] = {
    FieldType.STRING: frozenset({str, _NULL}),
    FieldType.INTEGER: frozenset({int, _NULL}),
    FieldType.FLOAT: frozenset({int, float, _NULL}),
    FieldType.BOOLEAN: frozenset({bool, _NULL}),
}
_NOTHING: Final = NewTuple(0.0, b"")


async def read_tuples(
    stream: EventStream, documents: Sequence[Any], now_s: float
) -> list[NewTuple]:
    """Read tuples from JSON; raises `Invalid` with the locations of the first mistakes in a batch.

    It lets others go on now and then: a thread that does would take seven times as long.

    Args:
        now_s: The time here, in seconds since 1970.
    """
    reader, tuples, weight = _Reader(stream, now_s + LONGEST_AHEAD_S), [], 0
    for index, each in enumerate(documents):
        before = len(reader.errors)
        read = reader.read(index, each)
        if reader.room <= 0:
            break
        tuples.append(read)
        weight += _TUPLE_WEIGHT + len(read.values)
        weight += _MISTAKE_WEIGHT * (len(reader.errors) - before)
        if weight > _HEAVY:
            weight = 0
            await asyncio.sleep(0)
    if reader.errors:
        raise invalid(reader.errors)
    return tuples


class _Reader:
    """What is read after a mistake is thrown away; nothing is read once there is no more room."""

    def __init__(self, stream: EventStream, latest_s: float) -> None:
        self._types = {
            name: _OF_TYPE.get(stream.types.get(name, ""), _SCALARS) for name in stream.attributes
        }
        self._declared = stream.types
        self._latest_s = latest_s
        self.errors: list[Location] = []

    @property
    def room(self) -> int:
        """How many more mistakes are reported."""
        return MAX_ERRORS - len(self.errors)

    def read(self, index: int, document: Any) -> NewTuple:
        if not isinstance(document, dict) or document.keys() != _MEMBERS:
            self._error(index, "", "must be an object of time_s and values")
            return _NOTHING
        time_s, values = document["time_s"], document["values"]
        if type(time_s) not in _NUMBERS or not 0 <= time_s <= self._latest_s:
            self._error(index, "/time_s", "must be seconds since 1970, less than a day ahead")
        if not isinstance(values, dict):
            self._error(index, "/values", "must be an object")
            return _NOTHING
        unfit = (name for name, value in values.items() if not self._fits(name, value))
        # A tuple may have as many names as fit into a request.
        wrong = list(islice(unfit, max(1, self.room)))
        if wrong:  # which may be nested too deeply to be written again
            for name in wrong:
                self._error(index, f"/values{token(name)}", self._reason(name))
            return _NOTHING
        text = orjson.dumps(values)
        if len(text) > LARGEST_TUPLE:
            self._error(index, "/values", f"must have at most {LARGEST_TUPLE:,} bytes")
        return NewTuple(time_s, text)

    def _fits(self, name: str, value: Any) -> bool:
        allowed = self._types.get(name)
        if allowed is None or type(value) not in allowed:
            return False
        return type(value) is not int or -_INT64 <= value < _INT64

    def _reason(self, name: str) -> str:
        if name not in self._types:
            return "is no attribute of the stream" + did_you_mean(name, self._types)
        if declared := self._declared.get(name):
            return f"must be of type {declared}, or null; a whole number has 64 bits"
        return "must be a string, a number, a boolean or null; a whole number has 64 bits"

    def _error(self, index: int, pointer: str, detail: str) -> None:
        self.errors.append(Location(f"/tuples/{index}{pointer}", detail))
