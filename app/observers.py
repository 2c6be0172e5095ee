"""Subscribers to what happens: the log, and the metrics that Prometheus scrapes."""

from __future__ import annotations

import logging
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from mediator.observation import (
    CircuitChanged,
    Observation,
    PlacementDecided,
    ProposalRecorded,
    RedoRecovered,
    RequestFinished,
    StoreCallFinished,
    SystemRegistered,
    ViolationDetected,
)

__all__ = ["Instruments", "log_observation"]

_log = logging.getLogger("portolan")

# Buckets of the OpenTelemetry semantic conventions for HTTP and database durations, in seconds.
_HTTP_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_STORE_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)


def log_observation(told: Observation) -> None:
    """Write what operators want to read; requests and store calls are left to the metrics."""
    match told:
        case RequestFinished() | StoreCallFinished():
            return
        case CircuitChanged(open=True) | ViolationDetected():
            _log.warning("%s", told)
        case _:
            _log.info("%s", told)


class Instruments:
    """Prometheus metrics; `observe` is on the path of every request."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # Finding a child by its labels takes longer than counting.
        self._children: dict[tuple[str, ...], tuple[Histogram, Counter]] = {}
        self._timers: dict[tuple[str, str, int], Histogram] = {}
        self._requests = Histogram(
            "http_server_request_duration_seconds",
            "Time to answer a request.",
            ["method", "route", "status"],
            buckets=_HTTP_S,
            registry=self.registry,
        )
        self._calls = Histogram(
            "db_client_operation_duration_seconds",
            "Time of a round trip to a store.",
            ["system", "database", "collection", "operation", "outcome"],
            buckets=_STORE_S,
            registry=self.registry,
        )
        self._operations = self._counter(
            "portolan_store_operations", "Operations sent to a store.", "system", "operation"
        )
        self._circuits = Gauge(
            "portolan_circuit_open",
            "Whether calls to a system are held back.",
            ["system"],
            registry=self.registry,
        )
        self._violations = self._counter(
            "portolan_violations", "Violations of annotations.", "database", "node", "metric"
        )
        self._proposals = self._counter(
            "portolan_proposals", "Recorded proposals to move a node.", "database", "node"
        )
        self._redone = self._counter(
            "portolan_redo", "Writes over several systems settled after a crash.", "outcome"
        )

    def observe(self, told: Observation) -> None:
        """Count what happened."""
        match told:
            case StoreCallFinished():
                self._call(told)
            case RequestFinished():
                self._request(told)
            case CircuitChanged():
                self._circuits.labels(told.system).set(told.open)
            case ViolationDetected():
                self._violations.labels(told.database, told.node, told.metric).inc()
            case ProposalRecorded():
                self._proposals.labels(told.database, told.node).inc()
            case RedoRecovered():
                self._redone.labels(told.outcome).inc()
            case PlacementDecided() | SystemRegistered():
                return

    def _call(self, told: StoreCallFinished) -> None:
        labels = (told.system, told.database, told.class_name, told.operation, told.outcome)
        timer, counter = self._children.get(labels) or self._children_of(labels)
        timer.observe(told.seconds)
        counter.inc(told.count)

    def _children_of(self, labels: tuple[str, ...]) -> tuple[Histogram, Counter]:
        system, _, _, operation, _ = labels
        timer = self._calls.labels(*labels)
        made = self._children[labels] = timer, self._operations.labels(system, operation)
        return made

    def _request(self, told: RequestFinished) -> None:
        labels = (told.method, told.route, told.status)
        timer = self._timers.get(labels)
        if timer is None:
            timer = self._timers[labels] = self._requests.labels(*map(str, labels))
        timer.observe(told.seconds)

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(name, help_, labels, registry=self.registry)
