"""Checks a trace by docs/protocol.md: VIS, which Portolan promises for records, and ACK."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from sketch.instruments.trace.order import ordered
from sketch.instruments.trace.reading import (
    LATEST_US,
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
from sketch.instruments.trace.staleness import early_reads, lateness, writers

__all__ = ["SHOWN", "check", "check_file", "check_trace"]

SHOWN: Final = 20
"""How many reads, and contradictions, are listed."""


def check_trace(
    path: Path, delta_s: float | None = None, promise: Promise = "vis", *, as_json: bool = False
) -> tuple[str, int]:
    """Check a trace; return the text to print, and the exit status: 1 if it does not hold.

    Args:
        path: Of the trace.
        delta_s: The bound, in seconds; without one only contradictions fail.
        promise: What reads are held to.
        as_json: Whether programs will read it.

    Raises:
        ValueError: A line is no operation (`TraceMistake`), or the bound is negative.
        OSError: The file cannot be read.
    """
    report = check_file(path, None if delta_s is None else _microseconds(delta_s), promise)
    text = orjson.dumps(report.as_document()).decode() if as_json else report.as_text()
    return text, 0 if report.holds else 1


def _microseconds(seconds: float) -> int:
    if not 0 <= seconds < inf:
        raise ValueError("a bound is a number of seconds that is not negative")
    return round(min(seconds * 1e6, LATEST_US))


def check_file(path: Path, bound_us: int | None = None, promise: Promise = "vis") -> TraceReport:
    """Check a trace that is in a file; see `check`.

    Raises:
        TraceMistake: A line is not an operation.
        OSError: The file cannot be read.
    """
    name = os.fsencode(path).decode(errors="replace")
    with path.open("rb") as stream:
        return check(read_trace(lines_of(stream), name), bound_us, promise)


def check(trace: Trace, bound_us: int | None = None, promise: Promise = "vis") -> TraceReport:
    """Check a trace, in O(n log n); keys with values take O(n log n log d), d their duration.

    Args:
        trace: The operations.
        bound_us: What reads are held against, in microseconds.
        promise: What they are held to: ``vis`` or ``ack``.

    Raises:
        TraceMistake: Two writes made the same version of a key.
    """
    write_of, twice = writers(trace)
    if twice is not None:
        what = f"writes what line {twice[0] + 1} has written already"
        raise TraceMistake(trace.name, twice[1] + 1, what)
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
    wrong = len(early) + len(disorder)
    shown = tuple(examples[:SHOWN])
    keys = len(trace.names)
    return TraceReport(trace.name, reads, writes, keys, promise, bound_us, vis, ack, wrong, shown)


def _evaluate(
    trace: Trace, seen: NDArray[np.bool_], write_of: NDArray[np.int64], bound_us: int | None
) -> tuple[Evaluation, NDArray[np.int64]]:
    """Evaluate reads; also return the writes that came too late for the versions they made."""
    late_us, missed = lateness(trace, ordered(trace, seen), seen)
    late = np.where(trace.write, 0, late_us)
    stale = np.flatnonzero(late)
    worst = stale[np.argsort(-late[stale], kind="stable")[:SHOWN]]
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
    known = trace.write & (trace.version >= 0) & ~trace.by_value[trace.key]
    return Evaluation(delta, len(stale), beyond, reads), np.flatnonzero(known & (late_us > 0))


def _line_of(operation: np.int64) -> int | None:
    return int(operation) + 1 if operation >= 0 else None


def _contradictions(
    trace: Trace, operations: NDArray[np.int64], detail: str
) -> list[Contradiction]:
    return [
        Contradiction(int(op) + 1, trace.names[trace.key[op]], f"its version {detail}")
        for op in operations[:SHOWN]
    ]
