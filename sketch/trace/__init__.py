"""Tells from a trace of reads and writes how stale the reads were (docs/instruments.md)."""

from sketch.trace.check import check, check_file
from sketch.trace.command import check_trace
from sketch.trace.reading import Trace, TraceMistake, read_trace
from sketch.trace.report import Contradiction, Judgement, StaleRead, TraceReport

__all__ = [
    "Contradiction",
    "Judgement",
    "StaleRead",
    "Trace",
    "TraceMistake",
    "TraceReport",
    "check",
    "check_file",
    "check_trace",
    "read_trace",
]
