"""Periodic measurements of this replica's requests, for the rules of admission control."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final

from app.security.rate_limits import TenantLimiter
from app.telemetry.request_history import RequestSampler
from mediator.admission.evaluation import Subject
from mediator.base.clock import Clock

__all__ = ["MeasuredTraffic"]

_MAX_TENANTS: Final = 500
"""The number of tenants that rules see, those with the most requests."""


@dataclass(eq=False)
class MeasuredTraffic:
    """Figures and tenants as of the last measurement.

    Attributes:
        _active: Requests in progress, by kind.
        _limiter: The accounts of tenants; None: requests are not authenticated.
    """

    _sampler: RequestSampler
    _active: Callable[[], Mapping[tuple[str, str], int]]
    _limiter: TenantLimiter | None
    _clock: Clock
    figures: Mapping[str, float] = field(default_factory=dict, init=False)
    tenants: list[Subject] = field(default_factory=list, init=False)
    _admitted: dict[str, int] = field(default_factory=dict, init=False)
    _measured_s: float = field(default=0.0, init=False)

    def measure(self) -> None:
        self.figures = {"requestsInFlight": sum(self._active().values()), **self._sample_figures()}
        self.tenants = self._measure_tenants()

    def _sample_figures(self) -> dict[str, float]:
        interval = self._sampler.sample()
        if interval is None:
            return {}
        share = 100 * interval.failures / interval.rate if interval.rate else 0.0
        figures = {"requestRate": interval.rate, "failureShare": share}
        if interval.p99_s is not None:
            figures["requestLatency"] = 1000 * interval.p99_s
        return figures

    def _measure_tenants(self) -> list[Subject]:
        previous, previous_s = self._admitted, self._measured_s
        meters = [] if self._limiter is None else list(self._limiter.meters)
        self._admitted = {meter.tenant: meter.admitted for meter in meters}
        self._measured_s = self._clock.monotonic()
        seconds = self._measured_s - previous_s
        tenants = [
            {
                "name": meter.tenant,
                "prio": meter.limits.priority,
                "rate": (meter.admitted - previous.get(meter.tenant, 0)) / seconds,
                "in_flight": meter.in_flight,
            }
            for meter in meters
        ]
        return nlargest(_MAX_TENANTS, tenants, key=lambda tenant: tenant["rate"])
