"""What utilisation will be: the trend of the last half hour, taken further.

The slope is the median of the slopes of all pairs of minutes (Theil 1950, Sen 1968): up to 29 % of
the minutes may be anything at all without moving it far. So a spike is no trend, and neither is a
load that goes up and down every five minutes (docs/papers/wattdb.md, section 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Final

from mediator.scaling.model import Sample

__all__ = ["HISTORY_S", "forecast", "minutes"]

HISTORY_S: Final = 1800.0
"""Seconds of history that a trend needs; one that is shorter says too little."""

_MINUTE_S: Final = 60.0
_MINUTES: Final = int(HISTORY_S / _MINUTE_S)


def minutes(samples: Sequence[Sample], now: float) -> list[float] | None:
    """Return the means of the last thirty minutes, the oldest first.

    Args:
        samples: In any order.
        now: The time in seconds.

    Returns:
        None if there is a minute of which nothing is known.
    """
    buckets: list[list[float]] = [[] for _ in range(_MINUTES)]
    for sample in samples:
        age = int((now - sample.at) // _MINUTE_S)
        if 0 <= age < _MINUTES:
            buckets[age].append(sample.used)
    if not all(buckets):
        return None
    return [fmean(bucket) for bucket in reversed(buckets)]


def forecast(means: Sequence[float], ahead_s: float) -> float:
    """Return the utilisation expected in `ahead_s` seconds; never below 0.

    Args:
        means: Of minutes, the oldest first; two at least.
        ahead_s: How far ahead.
    """
    pairs = combinations(enumerate(means), 2)
    slope = median((y - x) / (j - i) for (i, x), (j, y) in pairs)
    level = median(mean - slope * minute for minute, mean in enumerate(means))
    # The last mean stands for the middle of its minute.
    at = len(means) - 0.5 + ahead_s / _MINUTE_S
    return max(0.0, level + slope * at)
