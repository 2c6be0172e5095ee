"""Running averages of measurements, which weigh the past less."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from mediator.base.waiting_time import Costs

__all__ = ["Average", "MeasuredCosts", "Midmean", "Rate"]

_WEIGHT: Final = 0.2
"""The weight of the newest value in an average: about the last ten values count."""

_MIDMEAN_VALUES: Final = 20
"""How many of the last values a midmean covers."""

_MIN_RATE_S: Final = 0.5
"""Minimum time for which arrivals are counted before a rate is computed."""


@dataclass(eq=False, slots=True)
class Average:
    """A weighted moving average; `value` is None before the first value."""

    value: float | None = None

    def add(self, value: float) -> None:
        self.value = value if self.value is None else self.value + _WEIGHT * (value - self.value)


@dataclass(eq=False, slots=True)
class Midmean:
    """The mean of the middle half of the last values; `value` is None before the first one.

    Outliers, such as a machine that stalls for a moment, do not change it.
    """

    _values: deque[float] = field(default_factory=lambda: deque(maxlen=_MIDMEAN_VALUES))

    @property
    def value(self) -> float | None:
        quarter = len(self._values) // 4
        middle = sorted(self._values)[quarter : len(self._values) - quarter]
        return fmean(middle) if middle else None

    def add(self, value: float) -> None:
        self._values.append(value)


@dataclass(eq=False, slots=True)
class Rate:
    """Arrivals per second; `value` is None before the second count."""

    _average: Average = field(default_factory=Average)
    _counted: tuple[float, int] | None = None

    @property
    def value(self) -> float | None:
        return self._average.value

    def counted(self, arrived: int, now_s: float) -> None:
        """Record the arrivals so far, at a monotonic time in seconds."""
        if self._counted is None:
            self._counted = now_s, arrived
            return
        since_s, arrived_before = self._counted
        if now_s - since_s >= _MIN_RATE_S:
            self._average.add((arrived - arrived_before) / (now_s - since_s))
            self._counted = now_s, arrived


@dataclass(eq=False, slots=True)
class MeasuredCosts:
    """The costs of batches, by a line fitted to (calls, seconds) of the last ones."""

    _calls: Average = field(default_factory=Average)
    _seconds: Average = field(default_factory=Average)
    _squares: Average = field(default_factory=Average)
    _products: Average = field(default_factory=Average)

    def add(self, calls: int, seconds: float) -> None:
        self._calls.add(calls)
        self._seconds.add(seconds)
        self._squares.add(calls * calls)
        self._products.add(calls * seconds)

    @property
    def costs(self) -> Costs:
        """The constant and the linear part, neither negative; at first all is constant."""
        calls, seconds = self._calls.value or 0.0, self._seconds.value or 0.0
        variance = (self._squares.value or 0.0) - calls * calls
        covariance = (self._products.value or 0.0) - calls * seconds
        if variance <= 0 or covariance <= 0:
            return Costs(seconds, 0.0)
        linear_s = covariance / variance
        if linear_s * calls >= seconds:
            return Costs(0.0, seconds / calls)
        return Costs(seconds - linear_s * calls, linear_s)
