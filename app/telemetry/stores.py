"""Metrics of store calls, by the semantic conventions for databases (OpenTelemetry, stable)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.telemetry.area import Hear, counter, gauge
from mediator.base.observation import (
    CircuitChanged,
    ClockSkewMeasured,
    RedoRecovered,
    StoreCallFinished,
    SystemRegistered,
)

__all__ = ["UNKNOWN_KIND", "StoreMetrics", "error_type"]

UNKNOWN_KIND: Final = "other"
"""What stands for the kind of a system of whose registration nobody has told yet."""

_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
_LABELS: Final = (
    "db_system_name",
    "db_namespace",
    "db_collection_name",
    "db_operation_name",
    "error_type",
    "portolan_system",
)


def error_type(told: StoreCallFinished) -> str:
    """Return how a call failed; empty, which is absent, if it went well."""
    return "" if told.outcome == "ok" else told.outcome


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
            "Writes over several systems settled after a crash.",
            "outcome",
        )
        self._kinds: dict[str, str] = {}
        self._children: dict[tuple[str, ...], tuple[Histogram, Counter]] = {}

    @property
    def hears(self) -> Mapping[type[Any], Hear]:
        """See `Area`."""
        return {
            StoreCallFinished: self._called,
            SystemRegistered: self._registered,
            CircuitChanged: self._circuit_changed,
            ClockSkewMeasured: self._clock_read,
            RedoRecovered: self._recovered,
        }

    def _called(self, told: StoreCallFinished) -> None:
        labels = (told.system, told.database, told.class_name, told.operation, told.outcome)
        timer, operations = self._children.get(labels) or self._children_of(labels, told)
        timer.observe(told.seconds)
        operations.inc(told.count)

    def _children_of(
        self, labels: tuple[str, ...], told: StoreCallFinished
    ) -> tuple[Histogram, Counter]:
        timer = self._durations.labels(
            self._kinds.get(told.system, UNKNOWN_KIND),
            told.database,
            told.class_name,
            told.operation,
            error_type(told),
            told.system,
        )
        made = timer, self._operations.labels(told.system, told.operation)
        self._children[labels] = made
        return made

    def _registered(self, told: SystemRegistered) -> None:
        if self._kinds.get(told.system) != told.kind:
            self._kinds[told.system] = told.kind
            self._children.clear()

    def _clock_read(self, told: ClockSkewMeasured) -> None:
        self._skews.labels(told.system).set(told.seconds)

    def _circuit_changed(self, told: CircuitChanged) -> None:
        self._circuits.labels(told.system).set(told.open)

    def _recovered(self, told: RedoRecovered) -> None:
        self._redone.labels(told.outcome).inc()
