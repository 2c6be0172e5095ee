"""Metrics of what caches are told, and of what became of copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram

from app.coherence.query_registry import ResultsChanged
from app.telemetry.area import OF_CLASS, Hear, counter, gauge
from sketch.protocol.port import Part
from sketch.ttl import Regret
from sketch.ttl.events import LifeGranted

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
        self._life_timers: dict[Part, Histogram] = {}
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
        self._regrets: Callable[[], Mapping[Part, Regret]] = dict
        self._regretted: dict[Part, Regret] = {}

    @property
    def hears(self) -> Mapping[type[Any], Hear]:
        """See `Area`."""
        return {LifeGranted: self._granted, ResultsChanged: self._results_changed}

    def count_regrets(self, regrets: Callable[[], Mapping[Part, Regret]]) -> None:
        """Ask `regrets` what became of copies, at every look."""
        self._regrets = regrets

    def look(self) -> None:
        """Count what became of copies since the last look."""
        regrets = self._regrets()
        for part, regret in regrets.items():
            self._count(part, regret)
        # What an estimator has forgotten begins anew.
        self._regretted = {part: replace(regret) for part, regret in regrets.items()}

    def _count(self, part: Part, regret: Regret) -> None:
        before = self._regretted.get(part) or Regret()
        for fate in _FATES:
            since = getattr(regret, fate) - getattr(before, fate)
            self._fates.labels(*part, fate).inc(max(0, since))
        self._life_error.labels(*part).set(regret.error)

    def _granted(self, told: LifeGranted) -> None:
        timer = self._life_timers.get(told.part)
        if timer is None:
            timer = self._life_timers[told.part] = self._lives.labels(*told.part)
        timer.observe(told.life_s)

    def _results_changed(self, told: ResultsChanged) -> None:
        self._results.labels(*told.part).inc(told.changed)
        self._queries.labels(*told.part).set(told.registered)
