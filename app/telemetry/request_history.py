"""Requests of the last hour: rate, failures and latency, from the scraped metrics."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from time import time
from typing import Final

from prometheus_client import CollectorRegistry

__all__ = ["SAMPLE_PERIOD_S", "Interval", "RequestHistory", "RequestSampler"]

SAMPLE_PERIOD_S: Final = 30.0
"""Seconds between two samples."""

_MAX_INTERVALS: Final = 120
_BUCKETS: Final = "http_server_request_duration_seconds_bucket"
_FAILURE: Final = "5"
_P99: Final = 0.99


@dataclass(frozen=True, slots=True)
class Interval:
    """Requests between two samples.

    Attributes:
        at_s: The time of the second sample, in seconds since 1970.
        rate: Requests answered in a second.
        failures: Requests answered with 5xx, in a second.
        p99_s: The 99th percentile of their durations, by the buckets; None: no request.
    """

    at_s: float
    rate: float
    failures: float
    p99_s: float | None


class RequestHistory:
    """The intervals of the last hour; call `sample` every `SAMPLE_PERIOD_S` seconds."""

    def __init__(self, sampler: RequestSampler) -> None:
        self._sampler = sampler
        self._intervals: deque[Interval] = deque(maxlen=_MAX_INTERVALS)

    @property
    def intervals(self) -> list[Interval]:
        """Return the intervals of the last hour, the oldest first."""
        return list(self._intervals)

    async def sample(self) -> None:
        interval = self._sampler.sample()
        if interval is not None:
            self._intervals.append(interval)


class RequestSampler:
    """Samples the cumulative metrics, at no extra cost for requests."""

    def __init__(
        self,
        registry: CollectorRegistry,
        count_waiting: Callable[[], None],
        clock: Callable[[], float] = time,
    ) -> None:
        self._registry = registry.restricted_registry([_BUCKETS])
        self._count_waiting = count_waiting
        self._clock = clock
        self._last_s, self._last = clock(), self._read()

    def sample(self) -> Interval | None:
        """Return the interval since the last sample; None: the clock was set back."""
        now_s, current = self._clock(), self._read()
        last_s, last = self._last_s, self._last
        self._last_s, self._last = now_s, current
        seconds = now_s - last_s
        if seconds <= 0:
            return None
        buckets = {bound: count - last[0].get(bound, 0.0) for bound, count in current[0].items()}
        total, failed = buckets.get(inf, 0.0), current[1] - last[1]
        p99_s = quantile(buckets, _P99) if total else None
        return Interval(now_s, total / seconds, failed / seconds, p99_s)

    def _read(self) -> tuple[Mapping[float, float], float]:
        """Return the counts up to each bound, and the number of failed requests."""
        self._count_waiting()
        counts: dict[float, float] = defaultdict(float)
        failed = 0.0
        for family in self._registry.collect():
            for sample in family.samples:
                bound = float(sample.labels["le"])
                counts[bound] += sample.value
                if bound == inf and sample.labels["http_response_status_code"][0] == _FAILURE:
                    failed += sample.value
        return counts, failed


def quantile(buckets: Mapping[float, float], q: float) -> float:
    """Interpolate a quantile within its bucket, as PromQL's `histogram_quantile` does."""
    rank = q * buckets[inf]
    low, below = 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if count >= rank:
            if bound == inf:
                return low
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low
