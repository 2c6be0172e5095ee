"""Metrics of tenants: what was refused to them, and what they keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from app.telemetry.metric_group import Handler, counter, gauge
from mediator.base.observation import RequestRefused

__all__ = ["TenantMetrics"]


class TenantMetrics:
    """Refusals by limit, and objects of tenants whose number of them is bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = counter(
            registry,
            "portolan_tenant_refusals",
            "Requests beyond a limit of their tenant.",
            "tenant",
            "limit",
        )
        self._objects = gauge(
            registry, "portolan_tenant_objects", "Objects that a tenant keeps.", "tenant"
        )
        self._count_objects: Callable[[], Mapping[str, int]] = dict

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        """See `MetricGroup`."""
        return {RequestRefused: self._request_refused}

    def count_objects(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Ask `count` for the objects of tenants, at every refresh."""
        self._count_objects = count

    def refresh(self) -> None:
        """Show what tenants keep."""
        self._objects.clear()
        for tenant, count in self._count_objects().items():
            self._objects.labels(tenant).set(count)

    def _request_refused(self, event: RequestRefused) -> None:
        self._refused.labels(event.tenant, event.limit).inc()
