"""Validates tuples against the declaration of their stream, with the location of each mistake."""

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

__all__ = ["MAX_AHEAD_S", "MAX_BATCH_TUPLES", "MAX_TUPLE_BYTES", "read_tuples"]

MAX_BATCH_TUPLES: Final = 10_000
"""Maximum tuples of a batch."""

MAX_TUPLE_BYTES: Final = 2**15
"""Maximum bytes of a tuple's values as JSON."""

MAX_AHEAD_S: Final = 86_400.0
"""How far the time of a tuple may be ahead of our clock, in seconds."""

_SLICE_WEIGHT: Final = 2**14
"""Weight (bytes of values) read without a pause: some hundred microseconds."""

_TUPLE_WEIGHT: Final = 64
"""Additional weight of each tuple."""

_MISTAKE_WEIGHT: Final = 2**11
"""Additional weight of each mistake, for the search for similar attribute names."""

_INT64: Final = 2**63
_MEMBERS: Final = frozenset({"time_s", "values"})
_NUMBERS: Final = frozenset({int, float})
_NULL: Final = type(None)
_SCALARS: Final = frozenset({str, int, float, bool, _NULL})
_PYTHON_TYPES: Final[Mapping[str, frozenset[type]]] = {
    FieldType.STRING: frozenset({str, _NULL}),
    FieldType.INTEGER: frozenset({int, _NULL}),
    FieldType.FLOAT: frozenset({int, float, _NULL}),
    FieldType.BOOLEAN: frozenset({bool, _NULL}),
}
_INVALID: Final = NewTuple(0.0, b"")


async def read_tuples(
    stream: EventStream, documents: Sequence[Any], now_s: float
) -> list[NewTuple]:
    """Read tuples from JSON; raises `Invalid` with the locations of the first mistakes in a batch.

    It yields to other tasks periodically; a thread would take seven times as long.

    Args:
        now_s: Our current time, in seconds since 1970.
    """
    reader, tuples, weight = _Reader(stream, now_s + MAX_AHEAD_S), [], 0
    for index, document in enumerate(documents):
        error_count = len(reader.errors)
        tuple_ = reader.read(index, document)
        if reader.room <= 0:
            break
        tuples.append(tuple_)
        weight += _TUPLE_WEIGHT + len(tuple_.values)
        weight += _MISTAKE_WEIGHT * (len(reader.errors) - error_count)
        if weight > _SLICE_WEIGHT:
            weight = 0
            await asyncio.sleep(0)
    if reader.errors:
        raise invalid(reader.errors)
    return tuples


class _Reader:
    """Results after a mistake are discarded; nothing more is read without room for mistakes."""

    def __init__(self, stream: EventStream, latest_s: float) -> None:
        self._types = {
            name: _PYTHON_TYPES.get(stream.types.get(name, ""), _SCALARS)
            for name in stream.attributes
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
            return _INVALID
        time_s, values = document["time_s"], document["values"]
        if type(time_s) not in _NUMBERS or not 0 <= time_s <= self._latest_s:
            self._error(index, "/time_s", "must be seconds since 1970, less than a day ahead")
        if not isinstance(values, dict):
            self._error(index, "/values", "must be an object")
            return _INVALID
        invalid_names = (name for name, value in values.items() if not self._fits(name, value))
        # A tuple can have as many names as fit into a request.
        reported = list(islice(invalid_names, max(1, self.room)))
        if reported:  # their values may be nested too deeply to be encoded
            for name in reported:
                self._error(index, f"/values{token(name)}", self._reason(name))
            return _INVALID
        encoded = orjson.dumps(values)
        if len(encoded) > MAX_TUPLE_BYTES:
            self._error(index, "/values", f"must have at most {MAX_TUPLE_BYTES:,} bytes")
        return NewTuple(time_s, encoded)

    def _fits(self, name: str, value: Any) -> bool:
        allowed = self._types.get(name)
        if allowed is None or type(value) not in allowed:
            return False
        return type(value) is not int or -_INT64 <= value < _INT64

    def _reason(self, name: str) -> str:
        if name not in self._types:
            return "is not an attribute of the stream" + did_you_mean(name, self._types)
        if declared := self._declared.get(name):
            return f"must be of type {declared}, or null; a whole number has 64 bits"
        return "must be a string, a number, a boolean or null; a whole number has 64 bits"

    def _error(self, index: int, pointer: str, detail: str) -> None:
        self.errors.append(Location(f"/tuples/{index}{pointer}", detail))
