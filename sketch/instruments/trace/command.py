"""The command ``portolan check-trace``."""

from __future__ import annotations

from math import inf
from pathlib import Path

import orjson

from sketch.instruments.trace.check import check_file
from sketch.instruments.trace.reading import LATEST_US
from sketch.instruments.trace.report import Promise

__all__ = ["check_trace"]


def check_trace(
    path: Path, delta_s: float | None = None, promise: Promise = "vis", *, as_json: bool = False
) -> tuple[str, int]:
    """Judge a trace, and return what is to be printed, and the exit status: 1 if it does not hold.

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
