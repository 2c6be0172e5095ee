"""The least or the greatest value of a multiset that values are added to and taken from."""

from __future__ import annotations

import heapq
from typing import Any, Final

import orjson

from mediator.model.order import descending, rank
from mediator.schema.types import Value

__all__ = ["Extreme"]

_SLACK: Final = 32


class Extreme:
    """Values are taken away lazily: only at the top of a heap, or when most of it is gone.

    So each change takes logarithmic time, amortised.
    """

    def __init__(self, *, greatest: bool) -> None:
        self._greatest = greatest
        self._counts: dict[Any, int] = {}
        self._heap: list[tuple[Any, Value]] = []
        self._present = 0

    def add(self, value: Value, times: int = 1) -> None:
        key = self._key(value)
        before = self._counts.get(key)
        after = (before or 0) + times
        self._counts[key] = after
        self._present += (after != 0) - bool(before)
        if before is None:
            heapq.heappush(self._heap, (key, value))
            if len(self._heap) > 2 * self._present + _SLACK:
                self._compact()

    @property
    def size(self) -> int:
        """Values that are there; about as many that are gone may be remembered as well."""
        return self._present

    def result(self) -> Value:
        heap, counts = self._heap, self._counts
        while heap and not counts[heap[0][0]]:
            del counts[heapq.heappop(heap)[0]]
        return heap[0][1] if heap else None

    def _key(self, value: Value) -> Any:
        # Lists, and maps, have no order: their texts decide, so that the result is always the same.
        tie = orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if _is_composite(value) else b""
        key = (rank(value), tie)
        return descending(key) if self._greatest else key

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._counts[entry[0]]]
        heapq.heapify(self._heap)
        self._counts = {key: self._counts[key] for key, _ in self._heap}


def _is_composite(value: Value) -> bool:
    return isinstance(value, list | dict)
