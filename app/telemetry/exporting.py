"""Sending metrics and traces by OTLP, off the path of every request.

A thread sends metrics and a process traces; the event loop only puts something down for them. A
receiver that is slow or away costs what it does not take: spans beyond the queue are dropped, and
of metrics the newest state waits, one at most. Ending takes no longer than `CLOSE_S`, whatever the
receiver does.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import version
from time import time_ns
from typing import Final
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry

from app.settings.telemetry import TelemetrySettings
from app.telemetry.metrics_data import metrics_data
from app.telemetry.sending import SpanProcess
from app.telemetry.traces import Traces
from mediator.base.cancellation import end

__all__ = ["CLOSE_S", "Exporting"]

CLOSE_S: Final = 3.0
"""Seconds that what is left to be sent gets at the end."""


class Exporting:
    """Sends metrics and traces, from its making until it is closed.

    Args:
        settings: Where, and how often.
        registry: The metrics; read on the event loop, where they are counted.

    Attributes:
        traces: Makes the traces that are sent.
    """

    def __init__(self, settings: TelemetrySettings, registry: CollectorRegistry) -> None:
        resource = _resource()
        self._spans = SpanProcess(settings, resource)
        self.traces = Traces(settings.trace_ratio, self._spans.put)
        self._metrics = _MetricsThread(settings)
        self._registry = registry
        self._resource = resource
        self._every_s = settings.otlp_every_s
        self._began_ns = time_ns()
        self._sending: asyncio.Task[None] | None = None

    def start(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Begin to send metrics; `refresh` looks up before that what nobody tells of."""
        self._sending = asyncio.create_task(self._send(refresh))

    async def close(self) -> None:
        """Send what is left, as far as the receiver takes it in time."""
        if self._sending is not None:
            await end([self._sending])
        self._metrics.put(self._state())
        metrics = threading.Thread(target=self._metrics.end, daemon=True)
        metrics.start()
        await asyncio.gather(self._spans.close(CLOSE_S), asyncio.to_thread(metrics.join, CLOSE_S))

    async def _send(self, refresh: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await refresh()
            self._metrics.put(self._state())

    def _state(self) -> MetricsData:
        return metrics_data(self._registry.collect(), self._resource, self._began_ns, time_ns())


class _MetricsThread:
    """Sends states of the metrics, one after the other; of those that wait, only the newest."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self._exporter = OTLPMetricExporter(
            settings.endpoint("metrics"), timeout=settings.otlp_timeout_s
        )
        self._waiting: queue.Queue[MetricsData | None] = queue.Queue(1)
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def put(self, state: MetricsData | None) -> None:
        """Take a state to be sent, in place of one that waits still."""
        with suppress(queue.Empty):
            self._waiting.get_nowait()
        with suppress(queue.Full):  # only one thread puts
            self._waiting.put_nowait(state)

    def end(self) -> None:
        """End, once what waits is sent."""
        self._waiting.put(None)
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        while (state := self._waiting.get()) is not None:
            self._exporter.export(state)


def _resource() -> Resource:
    """Say who tells; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    told = {
        "service.name": "portolan",
        "service.version": version("portolan"),
        "service.instance.id": str(uuid4()),
    }
    return Resource(told).merge(OTELResourceDetector().detect())
