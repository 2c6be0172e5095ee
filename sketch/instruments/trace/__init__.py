"""Tells from a trace of reads and writes how stale the reads were (docs/instruments.md)."""

from sketch.instruments.trace.check import check, check_file
from sketch.instruments.trace.command import check_trace
from sketch.instruments.trace.reading import Trace, TraceMistake, read_trace
from sketch.instruments.trace.report import Contradiction, Evaluation, StaleRead, TraceReport

__all__ = [
    "Contradiction",
    "Evaluation",
    "StaleRead",
    "Trace",
    "TraceMistake",
    "TraceReport",
    "check",
    "check_file",
    "check_trace",
    "read_trace",
]
