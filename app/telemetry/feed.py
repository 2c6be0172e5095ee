"""Metrics of the change feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from app.telemetry.metric_group import Handler, counter, gauge
from mediator.base.observation import (
    ChangesRelayed,
    FeedGapFound,
    FeedLagMeasured,
    FeedRollbackFound,
)

__all__ = ["FeedMetrics"]


class FeedMetrics:
    """How complete the feed is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._relayed = counter(
            registry, "portolan_feed_changes", "Changes relayed to the feed.", "system"
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
    def handlers(self) -> Mapping[type[Any], Handler]:
        """See `MetricGroup`."""
        return {
            ChangesRelayed: self._changes_relayed,
            FeedLagMeasured: self._measured,
            FeedRollbackFound: self._rollback_found,
            FeedGapFound: self._gap_found,
        }

    def _changes_relayed(self, event: ChangesRelayed) -> None:
        self._relayed.labels(event.system).inc(event.count)

    def _measured(self, event: FeedLagMeasured) -> None:
        self._lag.labels(event.database, event.system).set(event.seconds)

    def _rollback_found(self, event: FeedRollbackFound) -> None:
        self._fallbacks.labels(event.system).inc()

    def _gap_found(self, event: FeedGapFound) -> None:
        self._gaps.labels(event.system).inc()
