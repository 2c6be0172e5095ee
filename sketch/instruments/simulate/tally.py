"""The counters of a simulation."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sketch.ttl.port import Weights

__all__ = ["SimulationCounts"]


@dataclass(slots=True)
class SimulationCounts:
    """Counts of one run, after its warm-up.

    Attributes:
        operations: Operations of the workload.
        reads: Single reads; a scan is several.
        writes: Single writes.
        client_hits: Reads that clients answered themselves.
        shared_hits: Reads that shared caches answered.
        misses: Reads that the origin answered because no cache could.
        revalidations: Reads that the origin answered because the filter held their key.
        needless: Revalidations that found the version that the client had.
        false_positives: Revalidations of keys that the filter held wrongly.
        old_filters: Revalidations because the filter was older than Δ.
        invalidations: Writes to keys with fresh copies.
        stale: Reads of versions overwritten by a write that was acknowledged before they began.
        beyond_bound: Stale reads whose overwrite was acknowledged more than Δ before.
        stalest_s: The longest time since a version that was read had been overwritten.
        filter_rate: Mean false positive rate of the filter.
        filter_keys: Mean number of keys in it.
        filter_keys_most: The largest number.
        filter_samples: How often the filter was sampled.
        latencies: The latency of each read (seconds).
        virtual_s: The duration in virtual time (seconds).
    """

    operations: int = 0
    reads: int = 0
    writes: int = 0
    client_hits: int = 0
    shared_hits: int = 0
    misses: int = 0
    revalidations: int = 0
    needless: int = 0
    false_positives: int = 0
    old_filters: int = 0
    invalidations: int = 0
    stale: int = 0
    beyond_bound: int = 0
    stalest_s: float = 0.0
    filter_rate: float = 0.0
    filter_keys: float = 0.0
    filter_keys_most: float = 0.0
    filter_samples: int = 0
    virtual_s: float = 0.0
    latencies: array[float] = field(default_factory=lambda: array("d"))

    def restart(self) -> None:
        fresh = SimulationCounts()
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))

    def record_filter(self, rate: float, keys: float) -> None:
        self.filter_samples += 1
        self.filter_rate += (rate - self.filter_rate) / self.filter_samples
        self.filter_keys += (keys - self.filter_keys) / self.filter_samples
        self.filter_keys_most = max(self.filter_keys_most, keys)

    @property
    def origin_reads(self) -> int:
        """Reads that the origin answered, which the cost function calls misses."""
        return self.misses + self.revalidations

    @property
    def hit_ratio(self) -> float:
        """The share of the reads that caches answered."""
        return 1 - self.origin_reads / self.reads if self.reads else 0.0

    def cost(self, weights: Weights) -> float:
        """Return the cost of an access, by the paper's cost function."""
        return weights.cost(
            self.invalidations,
            self.stale,
            self.origin_reads,
            self.reads + self.writes,
            self.filter_rate,
        )

    def to_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "latencies"}
        return {**counts, "hit_ratio": self.hit_ratio, "latency_ms": self._latencies()}

    def _latencies(self) -> dict[str, float]:
        if not self.latencies:
            return {}
        times = np.frombuffer(self.latencies, np.float64) * 1_000
        p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
        return {"mean": float(times.mean()), "p50": p50, "p95": p95, "p99": p99}
