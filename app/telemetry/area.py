"""An area of metrics: it says which of what is told concerns it, and counts that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["OF_CLASS", "Area", "Hear", "counter", "gauge"]

Hear: TypeAlias = Callable[[Any], None]
"""Takes one event, of the class under which it is found."""

OF_CLASS: Final = ("database", "class")


class Area(Protocol):
    """Metrics that belong together."""

    @property
    def hears(self) -> Mapping[type[Any], Hear]:
        """What counts an event, by the event's class."""


def counter(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Counter:
    """Make a counter; it is scraped as `name` with ``_total``."""
    return Counter(name, about, labels, registry=registry)


def gauge(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Gauge:
    """Make a gauge."""
    return Gauge(name, about, labels, registry=registry)
