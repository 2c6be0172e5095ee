"""Building blocks of metrics: counters, gauges, histograms, and handlers of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["OF_CLASS", "Handlers", "counter", "gauge", "histogram", "show"]

Handlers: TypeAlias = Mapping[type[Any], Callable[[Any], None]]
"""Functions that count an event, by its class."""

OF_CLASS: Final = ("database", "class")


def counter(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Counter:
    """Create a counter; it is scraped as `name` with ``_total``."""
    return Counter(name, about, labels, registry=registry)


def gauge(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Gauge:
    return Gauge(name, about, labels, registry=registry)


def histogram(
    registry: CollectorRegistry, name: str, about: str, buckets: tuple[float, ...], *labels: str
) -> Histogram:
    return Histogram(name, about, labels, buckets=buckets, registry=registry)


def show(target: Gauge, values: Mapping[Any, float]) -> None:
    """Set a gauge to values by tuples of labels; remove all other labels."""
    target.clear()
    for labels, value in values.items():
        target.labels(*labels).set(value)
