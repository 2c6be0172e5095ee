"""A histogram of latencies with fixed logarithmic buckets: bounded memory, bounded error."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from math import ceil, log2
from typing import Final

__all__ = ["BUCKETS", "bucket_of", "percentile", "pooled"]

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


def pooled(histograms: Iterable[list[int]]) -> list[int]:
    """Add histograms up."""
    total = [0] * BUCKETS
    for histogram in histograms:
        total = [a + b for a, b in zip(total, histogram, strict=True)]
    return total


def percentile(histogram: list[int], share: float) -> float | None:
    """Return the latency in seconds that `share` of the calls stay within; None without calls."""
    ranks = list(accumulate(histogram))
    if ranks[-1] == 0:
        return None
    bucket = bisect_left(ranks, max(1, ceil(share * ranks[-1])))
    return float(_SHORTEST_S * 2 ** ((bucket + 0.5) / _PER_OCTAVE))
