"""Checks a trace against docs/protocol.md: how stale its reads are by VIS and by ACK."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from sketch.instruments.trace.order import ordered_versions
from sketch.instruments.trace.reading import (
    MAX_TIME_US,
    NEVER,
    Trace,
    TraceMistake,
    lines_of,
    read_trace,
)
from sketch.instruments.trace.report import (
    Contradiction,
    Evaluation,
    Promise,
    StaleRead,
    TraceReport,
)

__all__ = ["check_trace"]


def lateness(
    trace: Trace, version: NDArray[np.int64], shows: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how late each operation is, and what it missed, in O(n log n).

    An operation on a version is late by the time from the earliest end of any operation on a newer
    version of its key until its own start, if that is positive.

    Args:
        trace: The operations.
        version: Their versions, in the order in which writes took effect.
        shows: Operations that show a version when they end: all, or the acknowledged writes.

    Returns:
        Microseconds, not negative; and the first operation that showed a newer version, or -1.
    """
    count = len(version)
    order = np.lexsort((-version, trace.key))
    key, newest = trace.key[order], version[order]
    keys = np.concatenate(([0], np.cumsum(key[1:] != key[:-1]))) if count else key.astype(np.int64)
    # Ends become ranks, so that the earliest of each key is a single running minimum.
    by_end = np.argsort(trace.end_us, kind="stable")
    rank = np.empty(count, np.int64)
    rank[by_end] = np.arange(count)
    rank[~shows | (trace.end_us == NEVER)] = count
    minimum = np.minimum.accumulate(rank[order] - keys * (count + 1))
    before = _group_starts(keys, newest) - 1
    # A minimum that stems from rows of another key comes out beyond `count` here.
    earliest = np.where(before >= 0, minimum[before] + keys * (count + 1), count)
    missed = np.full(count, -1, np.int64)
    has_newer = earliest < count
    missed[order[has_newer]] = by_end[earliest[has_newer]]
    late = np.where(missed >= 0, trace.start_us - trace.end_us[missed], 0)
    return np.maximum(late, 0), missed


def _group_starts(keys: NDArray[np.int64], version: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row of a sorted table where the rows of its key and version begin."""
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (version[1:] != version[:-1])
    return np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))


def writers(trace: Trace) -> tuple[NDArray[np.int64], tuple[int, int] | None]:
    """Return for each operation the write of its version, -1 if the trace has none.

    Also returns two writes of one version, if any: they are a mistake in the trace.
    """
    order = np.lexsort((trace.end_us, ~trace.write, trace.version, trace.key))
    first = order[_group_starts(trace.key[order].astype(np.int64), trace.version[order])]
    write_of = np.full(len(order), -1, np.int64)
    write_of[order] = np.where(trace.write[first], first, -1)
    write_of[trace.version < 0] = -1
    duplicates = np.flatnonzero(trace.write & (write_of >= 0) & (write_of != np.arange(len(order))))
    if not len(duplicates):
        return write_of, None
    return write_of, (int(write_of[duplicates[0]]), int(duplicates[0]))


def early_reads(trace: Trace, write_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the reads that ended before the write of their version began."""
    write_start = np.where(write_of >= 0, trace.start_us[write_of], -1)
    return np.flatnonzero(~trace.write & (trace.end_us < write_start))


MAX_EXAMPLES: Final = 20
"""How many reads, and contradictions, are listed."""


def check_trace(
    path: Path, delta_s: float | None = None, promise: Promise = "vis", *, as_json: bool = False
) -> tuple[str, int]:
    """Check a trace; return the text to print, and the exit status: 1 if it does not hold.

    Without a bound, in seconds, only contradictions fail.

    Raises:
        ValueError: A line is not an operation (`TraceMistake`), or the bound is negative.
        OSError: The file cannot be read.
    """
    report = check_file(path, None if delta_s is None else _microseconds(delta_s), promise)
    text = orjson.dumps(report.as_document()).decode() if as_json else report.as_text()
    return text, 0 if report.holds else 1


def _microseconds(seconds: float) -> int:
    if not 0 <= seconds < inf:
        raise ValueError("a bound is a number of seconds that is not negative")
    return round(min(seconds * 1e6, MAX_TIME_US))


def check_file(path: Path, bound_us: int | None = None, promise: Promise = "vis") -> TraceReport:
    name = os.fsencode(path).decode(errors="replace")
    with path.open("rb") as stream:
        return check(read_trace(lines_of(stream), name), bound_us, promise)


def check(trace: Trace, bound_us: int | None = None, promise: Promise = "vis") -> TraceReport:
    """Check a trace, in O(n log n); keys with values take O(n log n log d), d their duration.

    Raises:
        TraceMistake: Two writes made the same version of a key.
    """
    write_of, duplicates = writers(trace)
    if duplicates is not None:
        detail = f"writes the same version as line {duplicates[0] + 1}"
        raise TraceMistake(trace.name, duplicates[1] + 1, detail)
    answered = trace.end_us < NEVER
    vis, disorder = _evaluate(trace, answered, write_of, bound_us)
    ack, _ = _evaluate(trace, answered & trace.write, write_of, bound_us)
    early = early_reads(trace, write_of)
    examples = [
        *_contradictions(trace, early, "was read before its write began"),
        *_contradictions(trace, disorder, "was written after a newer version had been seen"),
    ]
    writes = int(trace.write.sum())
    reads = len(trace.write) - writes
    contradictions = len(early) + len(disorder)
    listed = tuple(examples[:MAX_EXAMPLES])
    keys = len(trace.names)
    return TraceReport(
        trace.name, reads, writes, keys, promise, bound_us, vis, ack, contradictions, listed
    )


def _evaluate(
    trace: Trace, shows: NDArray[np.bool_], write_of: NDArray[np.int64], bound_us: int | None
) -> tuple[Evaluation, NDArray[np.int64]]:
    """Evaluate reads; also return the writes that came too late for their versions."""
    late_us, missed = lateness(trace, ordered_versions(trace, shows), shows)
    late = np.where(trace.write, 0, late_us)
    stale = np.flatnonzero(late)
    worst = stale[np.argsort(-late[stale], kind="stable")[:MAX_EXAMPLES]]
    reads = tuple(
        StaleRead(
            line=int(read) + 1,
            key=trace.names[trace.key[read]],
            late_us=int(late[read]),
            seen_line=int(missed[read]) + 1,
            missed_line=_line_of(write_of[missed[read]]),
        )
        for read in worst
    )
    delta = int(late.max(initial=0))
    beyond = 0 if bound_us is None else int((late > bound_us).sum())
    versioned = trace.write & (trace.version >= 0) & ~trace.by_value[trace.key]
    return Evaluation(delta, len(stale), beyond, reads), np.flatnonzero(versioned & (late_us > 0))


def _line_of(operation: np.int64) -> int | None:
    return int(operation) + 1 if operation >= 0 else None


def _contradictions(
    trace: Trace, operations: NDArray[np.int64], detail: str
) -> list[Contradiction]:
    return [
        Contradiction(int(op) + 1, trace.names[trace.key[op]], f"its version {detail}")
        for op in operations[:MAX_EXAMPLES]
    ]
