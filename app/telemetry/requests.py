"""Metrics of requests, by the semantic conventions for HTTP (OpenTelemetry, stable)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram

from app.telemetry.metric_group import Handler, gauge
from mediator.base.observation import RequestFinished

__all__ = ["RequestMetrics"]

_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_LABELS: Final = ("http_request_method", "http_route", "http_response_status_code", "url_scheme")


class RequestMetrics:
    """Durations of requests, and how many are under way."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._durations = Histogram(
            "http_server_request_duration_seconds",
            "Time to answer a request.",
            _LABELS,
            buckets=_BUCKETS_S,
            registry=registry,
        )
        # Finding a child by its labels takes longer than counting.
        self._timers: dict[tuple[str, str, int, str], Histogram] = {}
        self._active = gauge(
            registry,
            "http_server_active_requests",
            "Requests under way.",
            "http_request_method",
            "url_scheme",
        )
        self._count_active: Callable[[], Mapping[tuple[str, str], int]] = dict
        self._subscribers = gauge(
            registry, "portolan_feed_subscribers", "Clients that follow a feed."
        )

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        """See `MetricGroup`."""
        return {RequestFinished: self._finished}

    def count_active(self, count: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        """Ask `count` for the requests under way by method and scheme, at every refresh."""
        self._count_active = count

    def count_subscribers(self, count: Callable[[], int]) -> None:
        """Ask `count` for the clients that follow a feed, at every refresh."""
        self._subscribers.set_function(count)

    def refresh(self) -> None:
        """Show what is under way."""
        for labels, count in self._count_active().items():
            self._active.labels(*labels).set(count)

    def _finished(self, event: RequestFinished) -> None:
        labels = (event.method, event.route, event.status, event.scheme)
        timer = self._timers.get(labels)
        if timer is None:
            timer = self._timers[labels] = self._durations.labels(*map(str, labels))
        timer.observe(event.seconds)
