"""Metrics of what caches are told, and of what became of copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram

from app.coherence.query_registry import ResultsChanged
from app.telemetry.area import OF_CLASS, Hear, counter, gauge
from sketch.protocol.port import Partition
from sketch.ttl import Regret
from sketch.ttl.events import TtlGranted

__all__ = ["CacheMetrics"]

_LIVES_S: Final = (0, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 3_600, 86_400)
_FATES: Final = ("invalidations", "revalidations_paid", "stale_avoided")


class CacheMetrics:
    """Lives that were granted, the fate of copies, and results of queries."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lives = Histogram(
            "portolan_cache_life_seconds",
            "Lives that answers were granted.",
            OF_CLASS,
            buckets=_LIVES_S,
            registry=registry,
        )
        self._life_timers: dict[Partition, Histogram] = {}
        self._fates = counter(
            registry, "portolan_cache_copies", "What became of copies.", *OF_CLASS, "fate"
        )
        self._life_error = gauge(
            registry,
            "portolan_cache_life_error",
            "Share of the copies that were invalidated, less the share that was expected.",
            *OF_CLASS,
        )
        self._results = counter(
            registry,
            "portolan_query_results_changed",
            "Cached results of queries that writes may have changed.",
            *OF_CLASS,
        )
        self._queries = gauge(
            registry,
            "portolan_registered_queries",
            "Queries whose results may be cached, as this replica knew them at the last change.",
            *OF_CLASS,
        )
        self._regrets: Callable[[], Mapping[Partition, Regret]] = dict
        self._regretted: dict[Partition, Regret] = {}

    @property
    def hears(self) -> Mapping[type[Any], Hear]:
        """See `Area`."""
        return {TtlGranted: self._granted, ResultsChanged: self._results_changed}

    def count_regrets(self, regrets: Callable[[], Mapping[Partition, Regret]]) -> None:
        """Ask `regrets` what became of copies, at every look."""
        self._regrets = regrets

    def look(self) -> None:
        """Count what became of copies since the last look."""
        regrets = self._regrets()
        for partition, regret in regrets.items():
            self._count(partition, regret)
        # What an estimator has forgotten begins anew.
        self._regretted = {partition: replace(regret) for partition, regret in regrets.items()}

    def _count(self, partition: Partition, regret: Regret) -> None:
        before = self._regretted.get(partition) or Regret()
        for fate in _FATES:
            since = getattr(regret, fate) - getattr(before, fate)
            self._fates.labels(*partition, fate).inc(max(0, since))
        self._life_error.labels(*partition).set(regret.error)

    def _granted(self, told: TtlGranted) -> None:
        timer = self._life_timers.get(told.partition)
        if timer is None:
            timer = self._life_timers[told.partition] = self._lives.labels(*told.partition)
        timer.observe(told.life_s)

    def _results_changed(self, told: ResultsChanged) -> None:
        self._results.labels(*told.partition).inc(told.changed)
        self._queries.labels(*told.partition).set(told.registered)
