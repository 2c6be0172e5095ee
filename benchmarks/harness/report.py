"""Options and results of benchmarks."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

from app.commands.demo.rounds import interleaved

__all__ = [
    "Measured",
    "Options",
    "Result",
    "medians",
    "per_second",
    "rounded",
    "timed_ms",
    "timed_s",
]


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a benchmark.

    Attributes:
        quick: Whether it has to end within a minute.
        log: Called with lines of progress.
        full: Whether it may take as long as its strongest claim needs; most ignore it.
        minutes: How long `soak` runs; None: its default.
        objects: The number of objects of `count` and `evolve`; None: their defaults.
    """

    quick: bool = False
    seed: int = 1
    log: Callable[[str], None] = print
    full: bool = False
    minutes: float | None = None
    objects: int | None = None

    def note(self, line: str) -> None:
        self.log(f"{line} (load average {os.getloadavg()[0]:.1f})")


@dataclass(frozen=True, slots=True)
class Result:
    """One figure, with its baseline and its bar.

    Attributes:
        baseline: The figure that it is compared with, in the same unit, measured in the same run;
            None if the bar is absolute.
        bar: The value that the ratio to the baseline, or the figure itself, has to reach; None if
            it is only reported.
        small_is_good: Whether less of it is better, as with latencies.
    """

    name: str
    unit: str
    figure: float
    baseline: float | None = None
    bar: float | None = None
    small_is_good: bool = False

    @property
    def ratio(self) -> float | None:
        return self.figure / self.baseline if self.baseline else None

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        reached = self.figure if self.ratio is None else self.ratio
        return reached <= self.bar if self.small_is_good else reached >= self.bar

    def to_json(self) -> dict[str, Any]:
        """Return the form of reports (docs/design.md, "Tests and figures")."""
        numbers = {"figure": self.figure, "baseline": self.baseline, "ratio": self.ratio}
        return {
            "name": self.name,
            "unit": self.unit,
            **{name: rounded(value) for name, value in numbers.items()},
            "bar": self.bar,
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """All results of a benchmark, and the versions of the servers they ran on, by system."""

    results: Sequence[Result]
    versions: Mapping[str, str] = field(default_factory=dict)


async def medians(
    rounds: int, measures: Mapping[str, Callable[[], Awaitable[float]]]
) -> dict[str, float]:
    """Measure every side in turn, and return the median of each by its name."""
    measured = await interleaved(rounds, measures)
    return {name: median(samples) for name, samples in measured.items()}


async def timed_s(execute: Callable[[], Awaitable[object]]) -> float:
    """Return how many seconds a call takes."""
    started = perf_counter()
    await execute()
    return perf_counter() - started


async def timed_ms(execute: Callable[[], Awaitable[object]]) -> float:
    """Return how many milliseconds a call takes."""
    return await timed_s(execute) * 1e3


def per_second(rates: Mapping[str, float]) -> str:
    """Return rates for a line of progress."""
    return ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items())


def rounded(value: float | None) -> float | None:
    """Keep four significant digits: more would pretend a false precision."""
    return None if value is None else float(f"{value:.4g}")
