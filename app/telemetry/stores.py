"""Metrics of store calls, by the semantic conventions for databases (OpenTelemetry, stable)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.telemetry.metric_group import Handler, counter, gauge
from mediator.base.observation import (
    CircuitChanged,
    ClockSkewMeasured,
    RedoRecovered,
    StoreCallFinished,
    SystemRegistered,
)

__all__ = ["UNKNOWN_KIND", "StoreMetrics", "error_type"]

UNKNOWN_KIND: Final = "other"
"""The kind of a system whose registration has not been observed yet."""

_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
_LABELS: Final = (
    "db_system_name",
    "db_namespace",
    "db_collection_name",
    "db_operation_name",
    "error_type",
    "portolan_system",
)


def error_type(event: StoreCallFinished) -> str:
    """Return how a call failed; empty, which is absent, if it went well."""
    return "" if event.outcome == "ok" else event.outcome


class StoreMetrics:
    """Round trips to stores, and how the systems are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._durations = Histogram(
            "db_client_operation_duration_seconds",
            "Time of a round trip to a store.",
            _LABELS,
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._operations = counter(
            registry,
            "portolan_store_operations",
            "Operations sent to a store.",
            "system",
            "operation",
        )
        self._circuits = gauge(
            registry,
            "portolan_circuit_open",
            "Whether calls to a system are held back.",
            "system",
        )
        self._skews = gauge(
            registry,
            "portolan_clock_skew_seconds",
            "By how much the clock of a system is ahead of this replica's.",
            "system",
        )
        self._redone = counter(
            registry,
            "portolan_redo",
            "Writes over several systems recovered after a crash.",
            "outcome",
        )
        self._kinds: dict[str, str] = {}
        self._children: dict[tuple[str, ...], tuple[Histogram, Counter]] = {}

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        """See `MetricGroup`."""
        return {
            StoreCallFinished: self._called,
            SystemRegistered: self._registered,
            CircuitChanged: self._circuit_changed,
            ClockSkewMeasured: self._skew_measured,
            RedoRecovered: self._recovered,
        }

    def _called(self, event: StoreCallFinished) -> None:
        labels = (event.system, event.database, event.class_name, event.operation, event.outcome)
        timer, operations = self._children.get(labels) or self._children_of(labels, event)
        timer.observe(event.seconds)
        operations.inc(event.count)

    def _children_of(
        self, labels: tuple[str, ...], event: StoreCallFinished
    ) -> tuple[Histogram, Counter]:
        timer = self._durations.labels(
            self._kinds.get(event.system, UNKNOWN_KIND),
            event.database,
            event.class_name,
            event.operation,
            error_type(event),
            event.system,
        )
        children = timer, self._operations.labels(event.system, event.operation)
        self._children[labels] = children
        return children

    def _registered(self, event: SystemRegistered) -> None:
        if self._kinds.get(event.system) != event.kind:
            self._kinds[event.system] = event.kind
            self._children.clear()

    def _skew_measured(self, event: ClockSkewMeasured) -> None:
        self._skews.labels(event.system).set(event.seconds)

    def _circuit_changed(self, event: CircuitChanged) -> None:
        self._circuits.labels(event.system).set(event.open)

    def _recovered(self, event: RedoRecovered) -> None:
        self._redone.labels(event.outcome).inc()
