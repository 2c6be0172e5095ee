"""The last hour of requests: intervals between samples of cumulative metrics."""

from __future__ import annotations

import pytest

from app.telemetry.metrics import Metrics
from app.telemetry.request_history import RequestHistory, RequestSampler
from mediator.base.observation import RequestFinished


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def observe_requests(metrics: Metrics, count: int, seconds: float, status: int = 200) -> None:
    for _ in range(count):
        metrics.observe(RequestFinished("GET", "/v1/{database}/{class}", status, seconds))


async def test_an_interval_counts_only_its_own_requests() -> None:
    metrics, clock = Metrics(), Clock()
    observe_requests(metrics, 7, 9.0)
    history = RequestHistory(RequestSampler(metrics.registry, metrics.count_waiting, clock))
    observe_requests(metrics, 99, 0.02)
    observe_requests(metrics, 1, 3.0, status=503)
    clock.now += 10
    await history.sample()
    observe_requests(metrics, 1, 0.001)
    clock.now += 5
    await history.sample()
    clock.now += 5
    await history.sample()
    first, second, third = history.intervals
    assert (first.at_s, first.rate, first.failures) == (1_010.0, 10.0, 0.1)
    assert first.p99_s == pytest.approx(0.025)  # the upper bound of the bucket of 20 ms
    assert (second.rate, second.failures) == (0.2, 0.0)
    assert second.p99_s is not None
    assert 0 < second.p99_s <= 0.005
    assert (third.rate, third.p99_s) == (0.0, None)


async def test_an_hour_is_kept() -> None:
    metrics, clock = Metrics(), Clock()
    history = RequestHistory(RequestSampler(metrics.registry, metrics.count_waiting, clock))
    for _ in range(130):
        clock.now += 30
        await history.sample()
    assert len(history.intervals) == 120
    assert history.intervals[-1].at_s == clock.now


async def test_a_clock_that_is_set_back_makes_no_interval() -> None:
    metrics, clock = Metrics(), Clock()
    history = RequestHistory(RequestSampler(metrics.registry, metrics.count_waiting, clock))
    clock.now -= 100
    await history.sample()
    assert history.intervals == []
    clock.now += 1
    await history.sample()
    assert len(history.intervals) == 1
