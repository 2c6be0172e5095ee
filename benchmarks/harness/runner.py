"""Runs a benchmark by name, and reports on it and on the machine."""

from __future__ import annotations

import ast
import importlib
import os
import platform
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from timeit import repeat
from typing import Any, cast

import benchmarks
from benchmarks.harness.report import Measured, Options, rounded

__all__ = [
    "UnknownBenchmark",
    "available",
    "calibration_s",
    "describe_machine",
    "lines",
    "measure",
]

_STEPS = 1_000_000
_REPEATS = 5

_Run = Callable[[Options], Awaitable[Measured]]


class UnknownBenchmark(Exception):
    """There is no benchmark of that name."""


def available() -> dict[str, str]:
    """Return the first line of every benchmark's description, by name.

    Modules are parsed, not imported: some need the packages of an extra.
    """
    descriptions = {}
    for source in sorted(Path(*benchmarks.__path__).glob("*.py")):
        module = ast.parse(source.read_text("utf-8"))
        if any(
            isinstance(node, ast.AsyncFunctionDef) and node.name == "run" for node in module.body
        ):
            descriptions[source.stem] = (ast.get_docstring(module) or "").partition("\n")[0]
    return descriptions


async def measure(name: str, options: Options) -> dict[str, Any]:
    """Run a benchmark; return the report (docs/design.md, "Tests and figures").

    Raises:
        UnknownBenchmark: There is none of that name.
    """
    name = name.replace("-", "_")
    if name not in available():
        raise UnknownBenchmark(f"There is no benchmark {name}; there are {', '.join(available())}.")
    module = importlib.import_module(f"{benchmarks.__name__}.{name}")
    calibration = calibration_s()
    measured = await cast("_Run", module.run)(options)
    return {
        "name": name,
        "results": [result.to_json() for result in measured.results],
        "seed": options.seed,
        "machine": describe_machine(),
        "calibration": rounded(calibration),
        "versions": dict(measured.versions),
    }


def describe_machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def calibration_s() -> float:
    """Return the median time of a fixed loop in seconds."""
    return median(repeat(_loop, number=1, repeat=_REPEATS))


def _loop() -> None:
    total = 0
    for step in range(_STEPS):
        total += step & 7


def lines(report: dict[str, Any]) -> list[str]:
    return [_line(result) for result in report["results"]]


def _line(result: dict[str, Any]) -> str:
    line = f"{result['name']}: {result['figure']:g} {result['unit']}"
    if result["ratio"] is not None:
        line += f" against {result['baseline']:g}, ratio {result['ratio']:.2f}"
    if result["bar"] is None:
        return line
    return f"{line} (bar {result['bar']:g}: {'met' if result['met'] else 'missed'})"
