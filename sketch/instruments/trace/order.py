"""Finds the order of writes that have values only: the order that makes reads least stale.

Gibbons and Korach ("Testing shared memories", 1997) put a write and the reads of its value into a
*zone*: from the earliest end of any of them, `f`, to the latest start, `s`. If f < s the zone is
forward, else backward. A trace is atomic if no two forward zones of a key overlap and no backward
one lies within a forward one. Golab, Li and Shah ("Analyzing consistency properties for fun and
profit", 2011) call it delta-atomic if it is atomic once the starts of all reads are moved back by
delta. A binary search finds the least delta of each key, for all keys at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketch.instruments.trace.reading import NEVER, Trace

__all__ = ["ordered_versions"]

_Times = NDArray[np.int64]


def ordered_versions(trace: Trace, shows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return versions for all operations: for keys with values, ranks in the order found.

    A value that no write of the trace has written existed before the trace began.

    Args:
        trace: The operations.
        shows: Operations that show a value when they end.
    """
    by_value = trace.by_value[trace.key]
    if not by_value.any():
        return trace.version
    rows = np.flatnonzero(by_value)
    zones, zone_of = _zones(trace, rows, shows[rows])
    delta = _min_delta(zones)
    begin = np.maximum(zones.written, zones.read - delta[zones.key])
    low, forward = np.minimum(zones.seen, begin), zones.seen < begin
    rank = np.empty(len(low), np.int64)
    rank[np.lexsort((forward, low))] = np.arange(len(low))
    version = trace.version.copy()
    version[rows] = rank[zone_of]
    return version


@dataclass(frozen=True, slots=True, eq=False)
class _Zones:
    """Zones of all keys on one timeline, where each key has its own stretch.

    Attributes:
        key: A number for each key, from 0.
        written: When the write began.
        read: When the last read began; no later than `written` if there is none.
        seen: When the first operation that shows the value ended.
    """

    key: _Times
    written: _Times
    read: _Times
    seen: _Times

    def of(self, rows: NDArray[Any]) -> _Zones:
        return _Zones(self.key[rows], self.written[rows], self.read[rows], self.seen[rows])


def _zones(
    trace: Trace, rows: _Times, shows: NDArray[np.bool_]
) -> tuple[_Zones, NDArray[np.int64]]:
    """Return zones, and the zone of each operation in `rows`."""
    order = np.lexsort((trace.version[rows], trace.key[rows]))
    key, version = trace.key[rows][order], trace.version[rows][order]
    begins = np.concatenate(([True], (key[1:] != key[:-1]) | (version[1:] != version[:-1])))
    heads = np.flatnonzero(begins)
    zone_of = np.empty(len(order), np.int64)
    zone_of[order] = np.cumsum(begins) - 1
    ops = rows[order]
    start, end, offset = _one_timeline(trace, ops, key)
    write = trace.write[ops]
    written = np.maximum.reduceat(np.where(write, start, -1), heads)
    unwritten = written < 0
    written[unwritten] = offset[heads][unwritten]
    read = np.maximum.reduceat(np.where(write, -1, start), heads)
    first_end = np.minimum.reduceat(np.where(shows[order], end, NEVER), heads)
    first_end[unwritten] = written[unwritten]
    numbers = np.cumsum(np.concatenate(([0], np.diff(key[heads]) != 0)))
    # A read that ended before its write began is a contradiction, which is reported elsewhere.
    return _Zones(numbers, written, read, np.maximum(first_end, written)), zone_of


def _one_timeline(
    trace: Trace, ops: _Times, key: NDArray[np.int32]
) -> tuple[_Times, _Times, _Times]:
    """Return starts and ends, moved so that keys follow each other; and where each key begins."""
    start, end = trace.start_us[ops], trace.end_us[ops]
    heads = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    first = np.minimum.reduceat(start, heads)
    last = np.maximum.reduceat(np.where(end == NEVER, start, end), heads)
    # One more before the first start, for older values, and one after the last end, for `NEVER`.
    spans = last - first + 3
    # Summed as floats: integers could overflow before the comparison.
    if spans.astype(np.float64).sum() >= NEVER:
        raise ValueError(f"{trace.name}: its keys are used for too long a time")
    offset = np.cumsum(spans) - spans
    lengths = np.diff(np.append(heads, len(key)))
    at, delta = np.repeat(offset, lengths), np.repeat(offset - first + 1, lengths)
    unknown = np.repeat(offset + spans - 1, lengths)
    return start + delta, np.where(end == NEVER, unknown, end + delta), at


def _min_delta(zones: _Zones) -> _Times:
    """Return for each key the least delta at which its zones do not conflict."""
    keys = int(zones.key[-1]) + 1
    low, high = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
    zones = zones.of(np.argsort(zones.seen, kind="stable"))
    open_ = _conflicts(zones, low)
    # At this delta no zone is forward, so none can conflict.
    np.maximum.at(high, zones.key, zones.read - zones.written)
    high = np.where(open_, np.maximum(high, 0), 0)
    while open_.any():
        zones = zones.of(open_[zones.key])
        middle = (low + high) // 2
        conflicting = _conflicts(zones, middle)
        low = np.where(open_ & conflicting, middle + 1, low)
        high = np.where(open_ & ~conflicting, middle, high)
        open_ = low < high
    return high


def _conflicts(zones: _Zones, delta: _Times) -> NDArray[np.bool_]:
    """Return for each key whether its zones conflict; they are sorted by `seen`."""
    begin = np.maximum(zones.written, zones.read - delta[zones.key])
    forward = zones.seen < begin
    # Sorted by `seen`: a zone overlaps an earlier one if the latest end so far is beyond its start.
    first, last = zones.seen[forward], np.maximum.accumulate(begin[forward])
    overlapping = np.flatnonzero(first[1:] < last[:-1]) + 1
    backward = ~forward
    before = np.searchsorted(first, begin[backward])
    within = before > 0
    within[within] = last[before[within] - 1] > zones.seen[backward][within]
    conflicting = np.zeros(len(delta), np.bool_)
    conflicting[zones.key[forward][overlapping]] = True
    conflicting[zones.key[backward][within]] = True
    return conflicting
