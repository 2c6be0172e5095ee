"""Metrics of granted TTLs, the fate of cached copies, and registered queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from app.coherence.query_registry import ResultsChanged
from app.telemetry.metric_group import OF_CLASS, Handlers, counter, gauge, histogram
from sketch.protocol.port import Partition
from sketch.ttl import Regret
from sketch.ttl.port import TtlGranted

__all__ = ["CacheMetrics"]

_TTLS_S: Final = (0, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 3_600, 86_400)
_FATES: Final = ("invalidations", "revalidations_paid", "stale_avoided")


class CacheMetrics:
    """Metrics of granted TTLs, the fate of copies, and results of queries.

    `regrets` returns the fates of copies; the composition root sets it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        about = "TTLs that answers were granted."
        self._ttls = histogram(registry, "portolan_cache_ttl_seconds", about, _TTLS_S, *OF_CLASS)
        self._ttl_timers: dict[Partition, Histogram] = {}
        about = "What became of copies."
        self._fates = counter(registry, "portolan_cache_copies", about, *OF_CLASS, "fate")
        about = "Share of the copies that were invalidated, less the share that was expected."
        self._ttl_error = gauge(registry, "portolan_cache_ttl_error", about, *OF_CLASS)
        about = "Cached results of queries that writes may have changed."
        self._results = counter(registry, "portolan_query_results_changed", about, *OF_CLASS)
        about = "Queries whose results may be cached, as this replica knew them at the last change."
        self._queries = gauge(registry, "portolan_registered_queries", about, *OF_CLASS)
        self.regrets: Callable[[], Mapping[Partition, Regret]] = dict
        self._last_regrets: dict[Partition, Regret] = {}
        self.handlers: Handlers = {
            TtlGranted: self._observe_ttl,
            ResultsChanged: self._count_results,
        }

    def refresh(self) -> None:
        regrets = self.regrets()
        for partition, regret in regrets.items():
            self._count(partition, regret)
        # An estimator that has evicted a class counts it from zero again.
        self._last_regrets = {partition: replace(regret) for partition, regret in regrets.items()}

    def _count(self, partition: Partition, regret: Regret) -> None:
        last = self._last_regrets.get(partition) or Regret()
        for fate in _FATES:
            increase = getattr(regret, fate) - getattr(last, fate)
            self._fates.labels(*partition, fate).inc(max(0, increase))
        self._ttl_error.labels(*partition).set(regret.error)

    def _observe_ttl(self, event: TtlGranted) -> None:
        timer = self._ttl_timers.get(event.partition)
        if timer is None:
            timer = self._ttl_timers[event.partition] = self._ttls.labels(*event.partition)
        timer.observe(event.ttl_s)

    def _count_results(self, event: ResultsChanged) -> None:
        self._results.labels(*event.partition).inc(event.changed)
        self._queries.labels(*event.partition).set(event.registered)
