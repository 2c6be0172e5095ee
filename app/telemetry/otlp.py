"""Export of metrics by OTLP over HTTP, beside the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from threading import Thread
from time import time_ns
from typing import Any
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry

from app.settings.telemetry import TelemetrySettings
from app.telemetry.otlp_metrics import metrics_data
from mediator.base.concurrency import end

__all__ = ["MetricsExport", "own_resource"]


class MetricsExport:
    """Exports metrics until it is closed.

    If the receiver is slow or away, only the newest state is exported.

    Args:
        registry: The metrics; read on the event loop, where they are counted.
    """

    def __init__(
        self, settings: TelemetrySettings, resource: Resource, registry: CollectorRegistry
    ) -> None:
        self._resource = resource
        self._metrics = OTLPMetricExporter(
            settings.endpoint("metrics"), timeout=settings.otlp_timeout_s
        )
        self._registry = registry
        self._every_s = settings.otlp_every_s
        self._started_ns = time_ns()
        self._exporting: Thread | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Begin to export metrics; `refresh` updates before each export what no event carries."""
        self._task = asyncio.create_task(self._export_metrics(refresh))

    async def close(self, within_s: float) -> None:
        """Export the last state, if the receiver takes it within some seconds."""
        if self._task is not None:
            await end([self._task])
        last = _start(self._close_metrics, self._exporting, self._collect())
        await asyncio.to_thread(last.join, within_s)

    async def _export_metrics(self, refresh: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if self._exporting is None or not self._exporting.is_alive():
                await refresh()
                self._exporting = _start(self._metrics.export, self._collect())

    def _collect(self) -> MetricsData:
        return metrics_data(self._registry.collect(), self._resource, self._started_ns, time_ns())

    def _close_metrics(self, exporting: Thread | None, last: MetricsData) -> None:
        if exporting is not None:
            exporting.join()  # an exporter has one connection, which threads cannot share
        self._metrics.export(last)
        self._metrics.shutdown()


def _start(run: Callable[..., Any], *arguments: Any) -> Thread:
    # A daemon: the end of the process does not wait for a receiver.
    thread = Thread(target=run, args=arguments, name="otlp", daemon=True)
    thread.start()
    return thread


def own_resource() -> Resource:
    """Return what identifies this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    attributes = {
        "service.name": "portolan",
        "service.version": version("portolan"),
        "service.instance.id": str(uuid4()),
    }
    return Resource(attributes).merge(OTELResourceDetector().detect())
