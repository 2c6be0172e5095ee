"""Requests of the last hour: rate, failures and latency, from what Prometheus scrapes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from time import time
from typing import Final

from prometheus_client import CollectorRegistry

__all__ = ["EVERY_S", "Interval", "RequestHistory", "RequestSampler"]

EVERY_S: Final = 30.0
"""Seconds between two samples."""

_KEPT: Final = 120
_BUCKETS: Final = "http_server_request_duration_seconds_bucket"
_FAILURE: Final = "5"
_P99: Final = 0.99


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened between two samples.

    Attributes:
        at_s: The time of the second sample, in seconds since 1970.
        rate: Requests answered in a second.
        failures: Those answered with 5xx, in a second.
        p99_s: The 99th percentile of their durations, by the buckets; None: there was no request.
    """

    at_s: float
    rate: float
    failures: float
    p99_s: float | None


class RequestHistory:
    """The intervals of the last hour; `sample` is called every `EVERY_S` seconds."""

    def __init__(self, sampler: RequestSampler) -> None:
        self._sampler = sampler
        self._intervals: deque[Interval] = deque(maxlen=_KEPT)

    @property
    def intervals(self) -> list[Interval]:
        """Return the intervals of the last hour, the oldest first."""
        return list(self._intervals)

    async def sample(self) -> None:
        interval = self._sampler.sample()
        if interval is not None:
            self._intervals.append(interval)


class RequestSampler:
    """Samples of the cumulative metrics: requests themselves cost nothing more."""

    def __init__(
        self,
        registry: CollectorRegistry,
        count_waiting: Callable[[], None],
        clock: Callable[[], float] = time,
    ) -> None:
        self._registry = registry.restricted_registry([_BUCKETS])
        self._count_waiting = count_waiting
        self._clock = clock
        self._before_s, self._before = clock(), self._read()

    def sample(self) -> Interval | None:
        """Return what has happened since the last sample; None: the clock was set back."""
        now_s, now = self._clock(), self._read()
        before_s, before = self._before_s, self._before
        self._before_s, self._before = now_s, now
        seconds = now_s - before_s
        if seconds <= 0:
            return None
        buckets = {bound: count - before[0].get(bound, 0.0) for bound, count in now[0].items()}
        total, failed = buckets.get(inf, 0.0), now[1] - before[1]
        p99_s = quantile(buckets, _P99) if total else None
        return Interval(now_s, total / seconds, failed / seconds, p99_s)

    def _read(self) -> tuple[Mapping[float, float], float]:
        """Return the counts up to each bound, and how many requests failed."""
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
