"""Export of metrics and traces by OTLP over HTTP, beside the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from threading import Thread
from time import time_ns
from typing import Any, Final
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry

from app.settings.telemetry import TelemetrySettings
from app.telemetry.otlp_metrics import metrics_data
from app.telemetry.span_process import SpanProcess
from app.telemetry.traces import Traces
from mediator.base.concurrency import end

__all__ = ["CLOSE_S", "OtlpExport"]

CLOSE_S: Final = 3.0
"""Seconds that the last export gets when the service ends."""


class OtlpExport:
    """Exports metrics and spans until it is closed.

    A receiver that is slow or away costs what it does not take: spans beyond a bound are dropped,
    and of metrics only the newest state is exported.

    Args:
        registry: The metrics; read on the event loop, where they are counted.

    Attributes:
        traces: Makes the spans that are exported.
    """

    def __init__(self, settings: TelemetrySettings, registry: CollectorRegistry) -> None:
        self._resource = _resource()
        self._spans = SpanProcess(settings, self._resource)
        self.traces = Traces(self._spans.put, settings.trace_ratio)
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

    async def close(self) -> None:
        """Export what is left, as far as the receiver takes it within `CLOSE_S`."""
        if self._task is not None:
            await end([self._task])
        metrics = _start(self._close_metrics, self._exporting, self._collect())
        await asyncio.gather(self._spans.close(CLOSE_S), asyncio.to_thread(metrics.join, CLOSE_S))

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


def _resource() -> Resource:
    """Return what identifies this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    attributes = {
        "service.name": "portolan",
        "service.version": version("portolan"),
        "service.instance.id": str(uuid4()),
    }
    return Resource(attributes).merge(OTELResourceDetector().detect())
