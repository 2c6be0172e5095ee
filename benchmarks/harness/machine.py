"""Describes the machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
from statistics import median
from time import perf_counter
from typing import Any

__all__ = ["calibration_s", "describe_machine"]

_STEPS = 1_000_000
_REPEATS = 5


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, operating system and interpreter."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def calibration_s() -> float:
    """Return the median time of a fixed loop in seconds."""
    return median(_loop_s() for _ in range(_REPEATS))


def _loop_s() -> float:
    started = perf_counter()
    total = 0
    for step in range(_STEPS):
        total += step & 7
    return perf_counter() - started
