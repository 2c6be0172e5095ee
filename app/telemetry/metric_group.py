"""Groups of metrics, and how their counters and gauges are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["OF_CLASS", "Handler", "MetricGroup", "counter", "gauge"]

Handler: TypeAlias = Callable[[Any], None]
"""Counts one event."""

OF_CLASS: Final = ("database", "class")


class MetricGroup(Protocol):
    """Metrics that are counted from the same events."""

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        """The handlers of events, by the class of the event."""


def counter(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Counter:
    """Make a counter; it is scraped as `name` with ``_total``."""
    return Counter(name, about, labels, registry=registry)


def gauge(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Gauge:
    """Make a gauge."""
    return Gauge(name, about, labels, registry=registry)
