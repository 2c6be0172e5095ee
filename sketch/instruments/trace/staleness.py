"""How late each operation is: by how much it began after something newer had been seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketch.instruments.trace.reading import NEVER, Trace

__all__ = ["early_reads", "lateness", "writers"]


def lateness(
    trace: Trace, version: NDArray[np.int64], seen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how late each operation is, and what it missed, in O(n log n).

    An operation on a version is late by the time from the earliest end of any operation on a newer
    version of its key until its own start, if that is positive.

    Args:
        trace: The operations.
        version: Their versions, in the order of which writes took effect.
        seen: Operations that show a version when they end: all, or the acknowledged writes.

    Returns:
        Microseconds, not negative; and the first operation that showed a newer version, -1 if there
        is none.
    """
    count = len(version)
    order = np.lexsort((-version, trace.key))
    key, newest = trace.key[order], version[order]
    keys = np.concatenate(([0], np.cumsum(key[1:] != key[:-1]))) if count else key.astype(np.int64)
    # Ends become ranks, so that the least one within each key is a single running minimum.
    by_end = np.argsort(trace.end_us, kind="stable")
    rank = np.empty(count, np.int64)
    rank[by_end] = np.arange(count)
    rank[~seen | (trace.end_us == NEVER)] = count
    least = np.minimum.accumulate(rank[order] - keys * (count + 1))
    before = _group_starts(keys, newest) - 1
    # What rows of other keys have left of the minimum comes out beyond `count` here.
    earliest = np.where(before >= 0, least[before] + keys * (count + 1), count)
    missed = np.full(count, -1, np.int64)
    known = earliest < count
    missed[order[known]] = by_end[earliest[known]]
    late = np.where(missed >= 0, trace.start_us - trace.end_us[missed], 0)
    return np.maximum(late, 0), missed


def _group_starts(keys: NDArray[np.int64], version: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row of a sorted table where the rows of its key and version begin."""
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (version[1:] != version[:-1])
    return np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))


def writers(trace: Trace) -> tuple[NDArray[np.int64], tuple[int, int] | None]:
    """Return for each operation the write of its version, -1 if the trace has none.

    Also returns two writes of one version, if there are such: they cannot be.
    """
    order = np.lexsort((trace.end_us, ~trace.write, trace.version, trace.key))
    first = order[_group_starts(trace.key[order].astype(np.int64), trace.version[order])]
    write_of = np.full(len(order), -1, np.int64)
    write_of[order] = np.where(trace.write[first], first, -1)
    write_of[trace.version < 0] = -1
    again = np.flatnonzero(trace.write & (write_of >= 0) & (write_of != np.arange(len(order))))
    if not len(again):
        return write_of, None
    return write_of, (int(write_of[again[0]]), int(again[0]))


def early_reads(trace: Trace, write_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return reads that ended before the write of their version began."""
    began = np.where(write_of >= 0, trace.start_us[write_of], -1)
    return np.flatnonzero(~trace.write & (trace.end_us < began))
