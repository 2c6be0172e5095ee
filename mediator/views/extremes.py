"""The minimum or maximum of a multiset with additions and removals."""

from __future__ import annotations

import heapq
from typing import Any, Final

import orjson

from mediator.model.order import descending, rank
from mediator.schema.types import Value

__all__ = ["Extreme"]

_SLACK: Final = 32


class Extreme:
    """Removes values lazily: only at the top of the heap, or when most of it is removed.

    Each change takes amortised logarithmic time.
    """

    def __init__(self, *, greatest: bool) -> None:
        self._greatest = greatest
        self._counts: dict[Any, int] = {}
        self._heap: list[tuple[Any, Value]] = []
        self._size = 0

    def add(self, value: Value, times: int = 1) -> None:
        key = self._key(value)
        former = self._counts.get(key)
        count = (former or 0) + times
        self._counts[key] = count
        self._size += (count != 0) - bool(former)
        if former is None:
            heapq.heappush(self._heap, (key, value))
            if len(self._heap) > 2 * self._size + _SLACK:
                self._compact()

    @property
    def size(self) -> int:
        """Distinct values; about as many removed values may still be in memory."""
        return self._size

    def result(self) -> Value:
        heap, counts = self._heap, self._counts
        while heap and not counts[heap[0][0]]:
            del counts[heapq.heappop(heap)[0]]
        return heap[0][1] if heap else None

    def _key(self, value: Value) -> Any:
        # Lists and maps have no order: their JSON decides, so that the result is deterministic.
        tie = orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if _is_composite(value) else b""
        key = (rank(value), tie)
        return descending(key) if self._greatest else key

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._counts[entry[0]]]
        heapq.heapify(self._heap)
        self._counts = {key: self._counts[key] for key, _ in self._heap}


def _is_composite(value: Value) -> bool:
    return isinstance(value, list | dict)
