"""Statistics of store calls: latencies of one class, rates and successes of a system.

Histograms have fixed logarithmic buckets: bounded memory, bounded error.

Everything is weighted by age. Weights fade once a second rather than at every call, because these
records are on the path of every store call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil, log2
from operator import add
from typing import Final

__all__ = [
    "AVAILABILITY_HALF_LIFE_S",
    "BUCKETS",
    "CAPACITY_HALF_LIFE_S",
    "LATENCY_HALF_LIFE_S",
    "PERCENTILE_WINDOW_S",
    "SHOWN_HALF_LIFE_S",
    "SUSTAINED_S",
    "Series",
    "SystemSeries",
    "bucket_of",
    "faded",
    "percentile",
    "pooled",
]

_MIN_LATENCY_S: Final = 1e-6
_PER_OCTAVE: Final = 8
_OFFSET: Final = -log2(_MIN_LATENCY_S) * _PER_OCTAVE

BUCKETS: Final = 27 * _PER_OCTAVE
"""From 1 us to 134 s, 8 for each doubling: a percentile has an error of at most 4.5 %."""


def bucket_of(seconds: float) -> int:
    """Return the bucket of a latency; one beyond an end is in the outermost bucket there."""
    if seconds <= _MIN_LATENCY_S:
        return 0
    return min(int(log2(seconds) * _PER_OCTAVE + _OFFSET), BUCKETS - 1)


def pooled(histograms: Iterable[Iterable[Sequence[int]]]) -> list[int]:
    """Return the calls of every bucket, from pairs of a bucket and its calls."""
    total = [0] * BUCKETS
    for histogram in histograms:
        for bucket, calls in histogram:
            total[bucket] += calls
    return total


def percentile(histogram: list[int], share: float) -> float | None:
    """Return the latency in seconds within which `share` of the calls stay; None without calls."""
    ranks = list(accumulate(histogram))
    if ranks[-1] == 0:
        return None
    bucket = bisect_left(ranks, max(1, ceil(share * ranks[-1])))
    # The middle of the bucket, on the logarithmic scale.
    return float(_MIN_LATENCY_S * 2 ** ((bucket + 0.5) / _PER_OCTAVE))


SHOWN_HALF_LIFE_S: Final = 60.0
"""Half-life of a call in the mean and deviation of a class, for operators."""

LATENCY_HALF_LIFE_S: Final = 300.0
"""Half-life of a second in the scored latency.

Placement is long-lived, so a burst must not decide it: ten seconds are 2 % of the average."""

AVAILABILITY_HALF_LIFE_S: Final = 300.0
"""Half-life of a call in the availability."""

CAPACITY_HALF_LIFE_S: Final = 3600.0
"""Half-life of the highest sustained rate."""

PERCENTILE_WINDOW_S: Final = 60
"""Percentiles are of the current window and the preceding one."""

SUSTAINED_S: Final = 10
"""How long a rate must hold to count as capacity."""

# Weights below this do not fade: ratios of vanishing numbers would become noise.
_MIN_WEIGHT = 1e-6


def faded(seconds: int, half_life_s: float, weight: float = 1.0) -> float:
    """Return the factor by which a weight fades in some seconds."""
    if weight <= _MIN_WEIGHT:
        return 1.0
    return max(float(2.0 ** (-seconds / half_life_s)), _MIN_WEIGHT / weight)


class Windows:
    """Histograms of the calls of the current window, and of the preceding one.

    Attributes:
        present: Of the current one, by bucket; calls are added here.
    """

    __slots__ = ("before", "end", "present")

    def __init__(self, second: int) -> None:
        self.present = [0] * BUCKETS
        self.before = [0] * BUCKETS
        self.end = second + PERCENTILE_WINDOW_S

    def roll(self, second: int) -> None:
        """Open a new window if the current one has ended."""
        if second < self.end:
            return
        is_stale = second >= self.end + PERCENTILE_WINDOW_S
        self.before = [0] * BUCKETS if is_stale else self.present
        self.present = [0] * BUCKETS
        self.end = second + PERCENTILE_WINDOW_S

    @property
    def histogram(self) -> list[tuple[int, int]]:
        """The calls of both windows: each non-empty bucket, with their number."""
        if not (any(self.present) or any(self.before)):  # as usual for most classes
            return []
        totals = map(add, self.present, self.before)
        return [(bucket, calls) for bucket, calls in enumerate(totals) if calls]


class Series:
    """Latencies of successful calls of one class and operation: Welford's method with fading."""

    __slots__ = ("calls", "m2", "mean", "second", "weight", "windows")

    def __init__(self, now: float) -> None:
        self.second = int(now)
        self.calls = 0
        self.weight = 0.0
        self.mean = 0.0
        self.m2 = 0.0
        self.windows = Windows(self.second)

    def add(self, now: float, seconds: float) -> None:
        if now >= self.second + 1:
            self.roll(now)
        self.calls += 1
        self.weight += 1.0
        deviation = seconds - self.mean
        self.mean += deviation / self.weight
        # Welford: one deviation is from the old mean, the other from the new one.
        self.m2 += deviation * (seconds - self.mean)
        self.windows.present[bucket_of(seconds)] += 1

    def roll(self, now: float) -> None:
        """Fade by the whole seconds that have passed."""
        elapsed = max(0, int(now) - self.second)
        self.second += elapsed
        fade = faded(elapsed, SHOWN_HALF_LIFE_S, self.weight)
        self.weight *= fade
        self.m2 *= fade
        self.windows.roll(self.second)

    @property
    def has_faded(self) -> bool:
        """Whether its calls have faded: about half an hour after the last one."""
        return self.weight < 2 * _MIN_WEIGHT


class SystemSeries:
    """Operations, latency and successes of one system, reads or writes.

    A second counts once in the latency, however many calls it had: the duration of a slow period
    counts. `seen` is the weight of the seconds with calls, `mean` their mean.
    """

    __slots__ = (
        "all",
        "busy",
        "count",
        "fresh",
        "mean",
        "ok",
        "open",
        "peak",
        "ring",
        "second",
        "seen",
        "served",
        "windows",
    )

    def __init__(self, now: float) -> None:
        self.second = int(now)
        self.ok = 0.0
        self.all = 0.0
        self.fresh = 0
        self.count = 0
        self.served = 0
        self.busy = 0.0
        self.seen = 0.0
        self.mean = 0.0
        self.ring = [0] * SUSTAINED_S
        self.peak = 0.0
        self.open = False
        self.windows = Windows(self.second)

    def add(self, now: float, count: int, seconds: float, ok: bool) -> None:
        if now >= self.second + 1:
            self.roll(now)
        self.fresh += 1
        if ok:  # the latency of a failed call is not the store's
            self.count += count
            self.served += 1
            self.busy += seconds
            self.windows.present[bucket_of(seconds)] += 1
        else:
            self.ok -= 1.0

    def roll(self, now: float) -> None:
        """Fade by the whole seconds that have passed, and record the sustained rate."""
        self.all += self.fresh
        self.ok += self.fresh  # failed calls were already subtracted
        self.fresh = 0
        elapsed = max(0, int(now) - self.second)
        if elapsed:
            self._end_second(elapsed)
        # Only the first of these seconds had calls; the others were idle.
        for _ in range(min(elapsed, SUSTAINED_S)):
            self.ring = [*self.ring[1:], self.count]
            self.count = 0
            self.raise_peak(self.rate)
        self.second += elapsed
        self.windows.roll(self.second)
        self.peak *= faded(elapsed, CAPACITY_HALF_LIFE_S)
        fade = faded(elapsed, AVAILABILITY_HALF_LIFE_S, self.all)
        self.ok *= fade
        # While the breaker is open no call is made; calls then count as failing at the rate at
        # which old ones fade, as the availability would otherwise not change.
        self.all *= 1.0 if self.open else fade

    def _end_second(self, elapsed: int) -> None:
        self.seen, self.mean = self.latency
        self.served, self.busy = 0, 0.0
        self.seen *= faded(elapsed, LATENCY_HALF_LIFE_S, self.seen)

    @property
    def latency(self) -> tuple[float, float]:
        """Weight and mean of the seconds with calls, including the present one."""
        if not self.served:
            return self.seen, self.mean
        weight = self.seen + 1.0
        return weight, self.mean + (self.busy / self.served - self.mean) / weight

    def raise_peak(self, rate: float) -> None:
        self.peak = max(self.peak, rate)

    @property
    def rate(self) -> float:
        """Operations/s over the last `SUSTAINED_S` whole seconds."""
        return sum(self.ring) / SUSTAINED_S
