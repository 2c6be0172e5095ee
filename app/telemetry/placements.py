"""Metrics of placements and their reasons, and of reads of views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram

from app.telemetry.metric_group import OF_CLASS, Handler, counter, gauge
from mediator.base.observation import (
    PlacementDecided,
    ProposalRecorded,
    ViewReadFinished,
    ViolationDetected,
)

__all__ = ["PlacementMetrics", "ViewMetrics"]

_STALENESS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class PlacementMetrics:
    """Placements by the reason for them, and what speaks against them since."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decided = counter(
            registry, "portolan_placements", "Nodes placed with a schema.", "database", "reason"
        )
        self._violations = counter(
            registry,
            "portolan_violations",
            "Violations of annotations.",
            "database",
            "node",
            "metric",
        )
        self._proposals = counter(
            registry,
            "portolan_proposals",
            "Recorded proposals to move a node.",
            "database",
            "node",
        )

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        """See `MetricGroup`."""
        return {
            PlacementDecided: self._placed,
            ViolationDetected: self._violated,
            ProposalRecorded: self._proposed,
        }

    def _placed(self, event: PlacementDecided) -> None:
        for reason in event.reasons.values():
            self._decided.labels(event.database, reason).inc()

    def _violated(self, event: ViolationDetected) -> None:
        self._violations.labels(event.database, event.node, event.metric).inc()

    def _proposed(self, event: ProposalRecorded) -> None:
        self._proposals.labels(event.database, event.node).inc()


class ViewMetrics:
    """Reads that were tried at a view, and how old its copies are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tried = counter(
            registry,
            "portolan_view_reads",
            "Reads that a view could have answered, by what became of it.",
            *OF_CLASS,
            "decision",
        )
        self._staleness = Histogram(
            "portolan_answer_staleness_seconds",
            "How old answers of a view were at most, as measured.",
            OF_CLASS,
            buckets=_STALENESS_S,
            registry=registry,
        )
        self._ages = gauge(
            registry,
            "portolan_view_staleness_seconds",
            "How old the copies of a class in its view may be.",
            *OF_CLASS,
        )
        self._measure: Callable[[], Mapping[tuple[str, str], float]] = dict

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        """See `MetricGroup`."""
        return {ViewReadFinished: self._read_finished}

    def measure_ages(self, measure: Callable[[], Mapping[tuple[str, str], float]]) -> None:
        """Ask `measure` at every refresh for the age of copies in seconds, by class."""
        self._measure = measure

    def refresh(self) -> None:
        """Show how old copies are now; a view that is gone is shown no more."""
        self._ages.clear()
        for of_class, age_s in self._measure().items():
            self._ages.labels(*of_class).set(age_s)

    def _read_finished(self, event: ViewReadFinished) -> None:
        self._tried.labels(event.database, event.class_name, event.decision).inc()
        if event.decision == "answered" and event.measured_s is not None:
            self._staleness.labels(event.database, event.class_name).observe(event.measured_s)
