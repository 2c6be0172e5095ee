"""Metrics of the change feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from app.telemetry.area import Hear, counter, gauge
from mediator.base.observation import ChangesRelayed, FeedFellBack, FeedGapFound, FeedLagMeasured

__all__ = ["FeedMetrics"]


class FeedMetrics:
    """How complete the feed is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._relayed = counter(
            registry, "portolan_feed_changes", "Changes brought to the feed.", "system"
        )
        self._fallbacks = counter(
            registry, "portolan_feed_fallbacks", "Times that the feed lost what it had.", "system"
        )
        self._gaps = counter(
            registry, "portolan_feed_gaps", "Times that changes were missing for good.", "system"
        )
        self._lag = gauge(
            registry,
            "portolan_feed_lag_seconds",
            "For how long the feed may have lacked changes of a system.",
            "database",
            "system",
        )

    @property
    def hears(self) -> Mapping[type[Any], Hear]:
        """See `Area`."""
        return {
            ChangesRelayed: self._relayed_some,
            FeedLagMeasured: self._measured,
            FeedFellBack: self._fell_back,
            FeedGapFound: self._gap_found,
        }

    def _relayed_some(self, told: ChangesRelayed) -> None:
        self._relayed.labels(told.system).inc(told.count)

    def _measured(self, told: FeedLagMeasured) -> None:
        self._lag.labels(told.database, told.system).set(told.seconds)

    def _fell_back(self, told: FeedFellBack) -> None:
        self._fallbacks.labels(told.system).inc()

    def _gap_found(self, told: FeedGapFound) -> None:
        self._gaps.labels(told.system).inc()
