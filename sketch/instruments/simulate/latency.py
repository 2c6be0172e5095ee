"""Distributions of latencies in virtual time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Latency", "parse", "stream"]

_BATCH: Final = 4_096
_PATTERN: Final = re.compile(r"\s*([a-z]+)\(([^()]*)\)\s*")

_Draw: TypeAlias = Callable[..., NDArray[np.float64]]

_KINDS: Final[dict[str, tuple[_Draw, tuple[bool, ...]]]] = {
    "constant": (lambda _, count, time: np.full(count, time), (True,)),
    "normal": (
        lambda random, count, mean, deviation: np.maximum(random.normal(mean, deviation, count), 0),
        (True, True),
    ),
    "lognormal": (
        lambda random, count, median, spread: median * random.lognormal(0, spread, count),
        (True, False),
    ),
    "exponential": (
        lambda random, count, mean, minimum: minimum + random.exponential(mean, count),
        (True, True),
    ),
}
"""How times, never negative, are drawn; and which parameters of a distribution are times."""


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of times, as `parse` reads it; its times are in seconds."""

    kind: str
    numbers: tuple[float, ...]

    def sample(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw `count` times, in seconds."""
        draw, _ = _KINDS[self.kind]
        return draw(random, count, *self.numbers)


def parse(text: str) -> Latency:
    """Read a distribution: constant(2), normal(86.5, 5), lognormal(20, 0.5), exponential(3, 1).

    Times are in milliseconds: the mean and the deviation of normal, whose negative times count as
    0, the median of lognormal, the mean and the minimum of exponential. The spread of lognormal is
    a plain number.

    Raises:
        ValueError: The text has another form.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or match[1] not in _KINDS:
        raise ValueError(f"a latency is one of {', '.join(_KINDS)}, with numbers in parentheses")
    _, are_times = _KINDS[match[1]]
    numbers = [float(number) for number in match[2].split(",")]
    if len(numbers) != len(are_times) or not all(0 <= number < np.inf for number in numbers):
        raise ValueError(f"{match[1]} takes {len(are_times)} numbers that are not negative")
    pairs = zip(numbers, are_times, strict=True)
    return Latency(match[1], tuple(n / 1_000 if is_time else n for n, is_time in pairs))


def stream(latency: Latency, random: np.random.Generator) -> Callable[[], float]:
    def draws() -> Iterator[Any]:
        while True:
            yield from latency.sample(random, _BATCH).tolist()

    return draws().__next__
