"""Measurements of a worker: everything that keeps it from the next batch."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.clock import SystemClock
from mediator.flows.measurement import Measurement
from mediator.flows.queue import Batch
from tests.unit.flows.plans import ORDERS, flow


class HandClock(SystemClock):
    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def measure(**members: Any) -> Measurement:
    """A flow whose batches of ten take 0.3 s, 0.1 s of it for the messages; ten a second arrive."""
    clock = HandClock()
    measurement = Measurement(flow(ORDERS, **members), clock)
    for count in (0, 10):
        measurement.add_batch(Batch(1, 1, 10, count, 0, False, ()))
        clock.seconds += 1.0
    measurement.add_execution(0.3, 0.1, 10)
    return measurement


def test_the_time_of_the_queue_is_a_cost_of_the_batch() -> None:
    document = measure().document()
    assert document["constant_s"] == pytest.approx(0.2)
    assert document["linear_s"] == pytest.approx(0.01)
    assert document["wait_least_s"] == pytest.approx(0.2 / (1 - 10 * 0.01))


def test_requests_in_order_are_a_cost_of_each_message() -> None:
    measurement = measure(ordered=True)
    measurement.add_outbound(0.4, 10)
    measurement.add_execution(0.3, 0.1, 10)
    document = measurement.document()
    assert document["linear_s"] == pytest.approx(0.01 + 0.04)
    assert document["wait_least_s"] == pytest.approx(0.2 / (1 - 10 * 0.05))


def test_messages_queued_in_a_pause_do_not_shorten_the_wait() -> None:
    paused, other = measure(objective="work"), measure(objective="work")
    paused.add_batch(Batch(2, 1, 1_000, 20, 0, True, ()))
    other.add_batch(Batch(2, 1, 1_000, 20, 0, False, ()))
    for measurement in (paused, other):
        measurement.add_execution(0.3, 0.1, 10)
    assert paused.document()["selectivity"] == pytest.approx(1 / 10)
    assert paused.wait_s == measure(objective="work").wait_s > other.wait_s


def test_a_stall_does_not_change_the_wait_and_another_cost_does() -> None:
    measurement = measure()
    for _ in range(19):
        measurement.add_execution(0.3, 0.1, 10)
    usual_s = measurement.wait_s
    measurement.add_execution(30.0, 0.1, 10)
    assert measurement.wait_s == pytest.approx(usual_s)
    for _ in range(15):
        measurement.add_execution(0.5, 0.1, 10)
    assert measurement.wait_s == pytest.approx(0.4 / (1 - 10 * 0.01))
