"""Metrics of purging, and of the cache sketch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from app.telemetry.metric_group import OF_CLASS, Handler, counter, gauge
from sketch.protocol.port import PartitionState
from sketch.purging.port import PurgerChanged, PurgesFailed, PurgesSent, PurgesWaiting

__all__ = ["PurgeMetrics", "SketchMetrics"]


class PurgeMetrics:
    """What became of purges."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._purges = counter(
            registry,
            "portolan_purges",
            "Keys that caches were sent purges of.",
            "purger",
            "outcome",
        )
        self._down = gauge(
            registry,
            "portolan_purger_down",
            "Whether a cache does not take purges, and is left alone for a while.",
            "purger",
        )
        self._oldest = gauge(
            registry,
            "portolan_purges_oldest_seconds",
            "For how long the oldest purge waits that some cache has not confirmed.",
        )

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        """See `MetricGroup`."""
        return {
            PurgesSent: self._sent,
            PurgesFailed: self._failed,
            PurgerChanged: self._changed,
            PurgesWaiting: self._waiting,
        }

    def _sent(self, event: PurgesSent) -> None:
        self._purges.labels(event.purger, "sent").inc(event.keys)

    def _failed(self, event: PurgesFailed) -> None:
        self._purges.labels(event.purger, "failed").inc(event.keys)

    def _changed(self, event: PurgerChanged) -> None:
        self._down.labels(event.purger).set(event.down)

    def _waiting(self, event: PurgesWaiting) -> None:
        self._oldest.set(event.oldest_s)


class SketchMetrics:
    """How the partitions of the sketch are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        descriptions = {
            "keys": "Keys in the filter.",
            "bits_set": "Bits of the filter that are set.",
            "pending_writes": "Writes that are pending.",
            "purges_due": "Purges that nobody sends yet.",
        }
        self._gauges = {
            name: gauge(registry, f"portolan_sketch_{name}", description, *OF_CLASS)
            for name, description in descriptions.items()
        }

    def measure(self, states: Sequence[PartitionState]) -> None:
        """Show how the partitions are; those that are gone are shown no more."""
        values = {
            "keys": [state.keys for state in states],
            "bits_set": [state.bits_set for state in states],
            "pending_writes": [state.pending for state in states],
            "purges_due": [state.purges_due for state in states],
        }
        for name, shown in self._gauges.items():
            shown.clear()
            for state, value in zip(states, values[name], strict=True):
                shown.labels(*state.partition).set(value)
