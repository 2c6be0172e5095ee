"""An estimator that knows when the next write comes: no other can do better."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import inf

from sketch.protocol.port import Partition
from sketch.ttl.static import Static

__all__ = ["Oracle"]

_BEFORE_S = 1e-5
"""Copies end so long before the write arrives: clocks are rounded to microseconds."""


class Oracle(Static):
    """Lets every copy end just before its record is written.

    Nothing is ever invalidated, stale, or in the filter; what is left is one miss for each version
    that is read, as many as any cache has to have.

    Args:
        writes_s: When writes of each key reach the origin, in order.
    """

    def __init__(self, writes_s: Mapping[str, Sequence[float]]) -> None:
        super().__init__()
        self._writes_s = writes_s

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:  # noqa: ARG002 - the port
        """Return the time until the next write to any of the keys."""
        return min((self._until(key, now_s) for key in keys), default=0.0)

    def _until(self, key: str, now_s: float) -> float:
        writes = self._writes_s.get(key, ())
        following = bisect_right(writes, now_s)
        return max(0.0, writes[following] - now_s - _BEFORE_S) if following < len(writes) else inf
