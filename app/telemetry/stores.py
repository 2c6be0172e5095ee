"""Metrics of store calls, by the semantic conventions for databases (OpenTelemetry, stable)."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.telemetry.metric_group import OF_CLASS, Handlers, counter, gauge, histogram
from mediator.base.observation import (
    BatchFinished,
    CircuitChanged,
    ClockSkewMeasured,
    RedoRecovered,
    StoreCallFinished,
    SystemRegistered,
)

__all__ = ["UNKNOWN_KIND", "batch_handlers", "call_handlers", "error_type", "system_handlers"]

UNKNOWN_KIND: Final = "other"
"""The kind of a system before its registration is observed."""

_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
_SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_WAITS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
_LABELS: Final = (
    "db_system_name",
    "db_namespace",
    "db_collection_name",
    "db_operation_name",
    "error_type",
    "portolan_system",
)


def error_type(event: StoreCallFinished) -> str:
    """Return how a call failed; empty, which means absent, if it succeeded."""
    return "" if event.outcome == "ok" else event.outcome


def call_handlers(registry: CollectorRegistry) -> Handlers:
    about = "Time of a round trip to a store."
    durations = histogram(
        registry, "db_client_operation_duration_seconds", about, _BUCKETS_S, *_LABELS
    )
    about = "Operations sent to a store."
    operations = counter(registry, "portolan_store_operations", about, "system", "operation")
    kinds: dict[str, str] = {}
    children: dict[tuple[str, ...], tuple[Histogram, Counter]] = {}

    def children_of(event: StoreCallFinished) -> tuple[Histogram, Counter]:
        timer = durations.labels(
            kinds.get(event.system, UNKNOWN_KIND),
            event.database,
            event.class_name,
            event.operation,
            error_type(event),
            event.system,
        )
        return timer, operations.labels(event.system, event.operation)

    def observe_call(event: StoreCallFinished) -> None:
        labels = (event.system, event.database, event.class_name, event.operation, event.outcome)
        child = children.get(labels)
        if child is None:
            child = children[labels] = children_of(event)
        timer, count = child
        timer.observe(event.seconds)
        count.inc(event.count)

    def set_kind(event: SystemRegistered) -> None:
        if kinds.get(event.system) != event.kind:
            kinds[event.system] = event.kind
            # Their labels have the earlier kind.
            children.clear()

    return {StoreCallFinished: observe_call, SystemRegistered: set_kind}


def batch_handlers(registry: CollectorRegistry) -> Handlers:
    batch_labels = (*OF_CLASS, "system", "operation")
    about = "Single operations that one batch answered."
    sizes = histogram(registry, "portolan_batch_operations", about, _SIZES, *batch_labels)
    about = "How long the first operation of a batch waited."
    waits = histogram(registry, "portolan_batch_wait_seconds", about, _WAITS_S, *batch_labels)
    about = "Reads that an equal read of the same batch answered."
    shared = counter(registry, "portolan_shared_reads", about, *OF_CLASS, "system")

    def observe_batch(event: BatchFinished) -> None:
        labels = (event.database, event.class_name, event.system, event.operation)
        sizes.labels(*labels).observe(event.operations)
        waits.labels(*labels).observe(event.waited_s)
        if event.operations > event.calls:
            shared.labels(*labels[:3]).inc(event.operations - event.calls)

    return {BatchFinished: observe_batch}


def system_handlers(registry: CollectorRegistry) -> Handlers:
    about = "Whether calls to a system are held back."
    circuits = gauge(registry, "portolan_circuit_open", about, "system")
    about = "By how much the clock of a system is ahead of this replica's."
    skews = gauge(registry, "portolan_clock_skew_seconds", about, "system")
    about = "Writes over several systems recovered after a crash."
    recoveries = counter(registry, "portolan_redo", about, "outcome")
    return {
        CircuitChanged: lambda e: circuits.labels(e.system).set(e.open),
        ClockSkewMeasured: lambda e: skews.labels(e.system).set(e.seconds),
        RedoRecovered: lambda e: recoveries.labels(e.outcome).inc(),
    }
