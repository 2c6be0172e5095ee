"""What is kept of the calls to a store: latencies of one class, rates and successes of a system.

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

_SHORTEST_S: Final = 1e-6
_PER_OCTAVE: Final = 8
_OFFSET: Final = -log2(_SHORTEST_S) * _PER_OCTAVE

BUCKETS: Final = 27 * _PER_OCTAVE
"""From 1 us to 134 s, 8 for each doubling: a percentile is off by at most 4.5 %."""


def bucket_of(seconds: float) -> int:
    """Return the bucket of a latency; what lies beyond an end belongs to the last one there."""
    if seconds <= _SHORTEST_S:
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
    """Return the latency in seconds that `share` of the calls stay within; None without calls."""
    ranks = list(accumulate(histogram))
    if ranks[-1] == 0:
        return None
    bucket = bisect_left(ranks, max(1, ceil(share * ranks[-1])))
    # The middle of the bucket, on the logarithmic scale.
    return float(_SHORTEST_S * 2 ** ((bucket + 0.5) / _PER_OCTAVE))


SHOWN_HALF_LIFE_S: Final = 60.0
"""A call counts half after this time, in the mean and deviation of a class that operators see."""

LATENCY_HALF_LIFE_S: Final = 300.0
"""A second counts half after this time, in the latency that is scored.

Placement is decided for long, so a burst must not decide it: ten seconds are 2 % of the average."""

AVAILABILITY_HALF_LIFE_S: Final = 300.0
"""A call counts half after this time, in the availability."""

CAPACITY_HALF_LIFE_S: Final = 3600.0
"""The highest sustained rate seen halves in this time."""

PERCENTILE_WINDOW_S: Final = 60
"""Percentiles are of the current window and the one before it."""

SUSTAINED_S: Final = 10
"""How long a rate must hold to count as capacity."""

# Below this weight nothing fades any more: ratios of vanishing numbers would become noise.
_FAINT = 1e-6


def faded(seconds: int, half_life_s: float, weight: float = 1.0) -> float:
    """Return the factor that a weight fades by in some seconds."""
    if weight <= _FAINT:
        return 1.0
    return max(float(2.0 ** (-seconds / half_life_s)), _FAINT / weight)


class Windows:
    """Histograms of the calls of the current window, and of the one before it.

    Attributes:
        present: Of the current one, by bucket; a call is added here.
    """

    __slots__ = ("before", "end", "present")

    def __init__(self, second: int) -> None:
        self.present = [0] * BUCKETS
        self.before = [0] * BUCKETS
        self.end = second + PERCENTILE_WINDOW_S

    def roll(self, second: int) -> None:
        """Open a new window if it is time."""
        if second < self.end:
            return
        is_stale = second >= self.end + PERCENTILE_WINDOW_S
        self.before = [0] * BUCKETS if is_stale else self.present
        self.present = [0] * BUCKETS
        self.end = second + PERCENTILE_WINDOW_S

    @property
    def histogram(self) -> list[tuple[int, int]]:
        """The calls of both: each bucket that has some, with their number."""
        if not (any(self.present) or any(self.before)):  # as for most classes, at most times
            return []
        both = map(add, self.present, self.before)
        return [(bucket, calls) for bucket, calls in enumerate(both) if calls]


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
        off = seconds - self.mean
        self.mean += off / self.weight
        # Welford: one deviation is from the old mean, the other from the new one.
        self.m2 += off * (seconds - self.mean)
        self.windows.present[bucket_of(seconds)] += 1

    def roll(self, now: float) -> None:
        """Fade by the whole seconds that have passed."""
        passed = max(0, int(now) - self.second)
        self.second += passed
        fade = faded(passed, SHOWN_HALF_LIFE_S, self.weight)
        self.weight *= fade
        self.m2 *= fade
        self.windows.roll(self.second)

    @property
    def has_faded(self) -> bool:
        """Whether nothing is left of its calls: half an hour after the last one, about."""
        return self.weight < 2 * _FAINT


class SystemSeries:
    """Operations, latency and successes of one system, reads or writes.

    A second counts once in the latency, however many calls it had: what counts is for how long a
    system was seen to be slow. `seen` is the weight of the seconds with calls, `mean` their mean.
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
        if ok:  # the latency of a failed call is not that of the store
            self.count += count
            self.served += 1
            self.busy += seconds
            self.windows.present[bucket_of(seconds)] += 1
        else:
            self.ok -= 1.0

    def roll(self, now: float) -> None:
        """Fade by the whole seconds that have passed, and note what rate was sustained."""
        self.all += self.fresh
        self.ok += self.fresh  # those that failed were taken off at once
        self.fresh = 0
        passed = max(0, int(now) - self.second)
        if passed:
            self._end_second(passed)
        # Only the first of these seconds had calls; the others were idle.
        for _ in range(min(passed, SUSTAINED_S)):
            self.ring = [*self.ring[1:], self.count]
            self.count = 0
            self.raise_peak(self.rate)
        self.second += passed
        self.windows.roll(self.second)
        self.peak *= faded(passed, CAPACITY_HALF_LIFE_S)
        fade = faded(passed, AVAILABILITY_HALF_LIFE_S, self.all)
        self.ok *= fade
        # While the breaker is open no call is made; then calls count as failing at the rate at
        # which the old ones fade, or the availability would stay what it was before.
        self.all *= 1.0 if self.open else fade

    def _end_second(self, passed: int) -> None:
        self.seen, self.mean = self.latency
        self.served, self.busy = 0, 0.0
        self.seen *= faded(passed, LATENCY_HALF_LIFE_S, self.seen)

    @property
    def latency(self) -> tuple[float, float]:
        """Weight and mean of the seconds with calls, the present one included."""
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
