"""How long things take in virtual time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Constant", "Exponential", "Latency", "LogNormal", "Normal", "parse", "stream"]

_AT_ONCE: Final = 4_096
_PATTERN: Final = re.compile(r"\s*([a-z]+)\(([^()]*)\)\s*")


class Latency(Protocol):
    def sample(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw so many times, in seconds, none of them negative."""


@dataclass(frozen=True, slots=True)
class Constant:
    seconds: float

    def sample(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:  # noqa: ARG002 - the protocol
        return np.full(count, self.seconds)


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution; what would be negative takes no time."""

    mean_s: float
    deviation_s: float

    def sample(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        return np.maximum(random.normal(self.mean_s, self.deviation_s, count), 0.0)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Times of which the logarithm is normal: many short ones, a few very long ones."""

    median_s: float
    spread: float

    def sample(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        return self.median_s * random.lognormal(0.0, self.spread, count)


@dataclass(frozen=True, slots=True)
class Exponential:
    """An exponential distribution, shifted by a minimum."""

    mean_s: float
    least_s: float = 0.0

    def sample(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        return self.least_s + random.exponential(self.mean_s, count)


_KINDS: Final[dict[str, tuple[Callable[..., Latency], tuple[bool, ...]]]] = {
    "constant": (Constant, (True,)),
    "normal": (Normal, (True, True)),
    "lognormal": (LogNormal, (True, False)),
    "exponential": (Exponential, (True, True)),
}
"""The syntax of distributions, and which of their numbers are times."""


def parse(text: str) -> Latency:
    """Read a distribution: constant(2), normal(86.5, 5), lognormal(20, 0.5), exponential(3, 1).

    Times are in milliseconds; the spread of lognormal is a plain number.

    Raises:
        ValueError: It is written differently.
    """
    found = _PATTERN.fullmatch(text)
    if found is None or found[1] not in _KINDS:
        raise ValueError(f"a latency is one of {', '.join(_KINDS)}, with numbers in parentheses")
    kind, are_times = _KINDS[found[1]]
    numbers = [float(number) for number in found[2].split(",")]
    if len(numbers) != len(are_times) or not all(0 <= number < np.inf for number in numbers):
        raise ValueError(f"{found[1]} takes {len(are_times)} numbers that are not negative")
    pairs = zip(numbers, are_times, strict=True)
    return kind(*(number / 1_000 if is_time else number for number, is_time in pairs))


def stream(latency: Latency, random: np.random.Generator) -> Callable[[], float]:
    def drawn() -> Iterator[Any]:
        while True:
            yield from latency.sample(random, _AT_ONCE).tolist()

    return drawn().__next__
