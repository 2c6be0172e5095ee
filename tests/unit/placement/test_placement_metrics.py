"""The metrics registry: metrics of systems from live traffic, on a clock that the test sets."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Literal

import pytest

from mediator.base.observation import (
    CallOutcome,
    CircuitChanged,
    RequestFinished,
    StoreCallFinished,
)
from mediator.placement.metrics_registry import History, MetricsRegistry
from mediator.placement.series import (
    AVAILABILITY_HALF_LIFE_S,
    BUCKETS,
    CAPACITY_HALF_LIFE_S,
    LATENCY_HALF_LIFE_S,
    SHOWN_HALF_LIFE_S,
    SUSTAINED_S,
    bucket_of,
    percentile,
)
from mediator.schema.annotations import Metric
from tests.conformance.virtual_time import HandClock


class Traffic:
    """A registry and the clock it reads."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.registry = MetricsRegistry(self.clock)

    def call(
        self,
        seconds: float = 0.001,
        *,
        operation: Literal["read", "write"] = "write",
        count: int = 1,
        outcome: CallOutcome = "ok",
        class_name: str = "articles",
    ) -> None:
        self.registry.observe(
            StoreCallFinished("redis", "news", class_name, operation, count, seconds, outcome)
        )

    def metric(self, metric: Metric) -> float | None:
        return self.registry.candidate_metrics("redis")[0].get(metric)

    def spread(self, seconds: int, per_second: int) -> None:
        """Spread calls evenly over some seconds."""
        for _ in range(seconds):
            for _ in range(per_second):
                self.call()
            self.clock.elapsed_s += 1


def test_mean_deviation_and_percentiles_are_those_of_the_calls() -> None:
    traffic = Traffic()
    for milliseconds in range(1, 101):
        traffic.call(milliseconds / 1000)
    (row,) = traffic.registry.statistics("redis")
    assert row["calls"] == 100
    assert row["mean_s"] == pytest.approx(0.0505)
    assert row["deviation_s"] == pytest.approx(0.028866, rel=1e-4)
    assert row["p50_s"] == pytest.approx(0.050, rel=0.05)
    assert row["p95_s"] == pytest.approx(0.095, rel=0.05)
    assert row["p99_s"] == pytest.approx(0.099, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, 3e-4, 0.1, 99.0, 1e6])
def test_every_latency_has_a_bucket_within_its_error(seconds: float) -> None:
    histogram = [0] * BUCKETS
    histogram[bucket_of(seconds)] = 1
    median = percentile(histogram, 0.5)
    assert median == pytest.approx(min(max(seconds, 1e-6), 134), rel=0.05)


def test_a_percentile_of_no_values_is_unknown() -> None:
    assert percentile([0] * BUCKETS, 0.99) is None


def test_a_latency_counts_half_after_its_half_life() -> None:
    traffic = Traffic()
    traffic.call(0.010)
    traffic.clock.elapsed_s += LATENCY_HALF_LIFE_S
    traffic.call(0.040)
    assert traffic.metric(Metric.WRITE_LATENCY) == pytest.approx((0.5 * 0.010 + 0.040) / 1.5)


def test_the_deviation_fades_with_its_calls() -> None:
    traffic = Traffic()
    traffic.call(0.010)
    traffic.call(0.030)
    traffic.clock.elapsed_s += SHOWN_HALF_LIFE_S
    (row,) = traffic.registry.statistics("redis")
    assert row["deviation_s"] == pytest.approx(0.010)


def test_percentiles_forget_calls_older_than_two_windows() -> None:
    traffic = Traffic()
    traffic.call(1.0)
    traffic.clock.elapsed_s += 70
    traffic.call(0.001)
    assert traffic.registry.candidate_metrics("redis")[1][Metric.WRITE_LATENCY] > 0.9
    traffic.clock.elapsed_s += 130
    traffic.call(0.001)
    assert traffic.registry.candidate_metrics("redis")[1][Metric.WRITE_LATENCY] < 0.002


def test_a_pipeline_is_one_latency_and_many_operations() -> None:
    traffic = Traffic()
    for _ in range(10):
        traffic.call(0.002, count=100)
        traffic.clock.elapsed_s += 1
    assert traffic.metric(Metric.WRITE_LATENCY) == pytest.approx(0.002)
    assert traffic.metric(Metric.WRITE_THROUGHPUT) == pytest.approx(100, rel=0.02)
    assert traffic.registry.offered() == {("redis", "write"): pytest.approx(100)}


def test_capacity_is_the_highest_sustained_rate_and_fades() -> None:
    traffic = Traffic()
    traffic.spread(10, per_second=50)
    traffic.spread(30, per_second=5)
    assert traffic.metric(Metric.WRITE_THROUGHPUT) == pytest.approx(50, rel=0.02)
    assert traffic.registry.offered()[("redis", "write")] == pytest.approx(5)
    traffic.clock.elapsed_s += CAPACITY_HALF_LIFE_S
    assert traffic.metric(Metric.WRITE_THROUGHPUT) == pytest.approx(25, rel=0.02)


def test_a_burst_is_not_a_capacity_and_a_calibrated_one_is_kept() -> None:
    traffic = Traffic()
    traffic.spread(1, per_second=100)
    assert traffic.metric(Metric.WRITE_THROUGHPUT) == pytest.approx(10, rel=0.02)
    traffic.registry.remember("redis", History({Metric.WRITE_THROUGHPUT: 25_000}))
    assert traffic.metric(Metric.WRITE_THROUGHPUT) == 25_000


def test_failed_calls_lower_availability_and_leave_latency() -> None:
    traffic = Traffic()
    for _ in range(3):
        traffic.call(0.001)
    traffic.call(2.0, outcome="timeout")
    assert traffic.metric(Metric.WRITE_AVAILABILITY) == pytest.approx(0.75)
    assert traffic.metric(Metric.WRITE_LATENCY) == pytest.approx(0.001)
    assert traffic.metric(Metric.READ_AVAILABILITY) is None


def test_availability_falls_while_the_breaker_is_open_and_recovers_after() -> None:
    traffic = Traffic()
    for _ in range(100):
        traffic.call()
    traffic.registry.observe(CircuitChanged("redis", open=True, reason="timeouts"))
    traffic.clock.elapsed_s += AVAILABILITY_HALF_LIFE_S
    assert traffic.metric(Metric.WRITE_AVAILABILITY) == pytest.approx(0.5)
    traffic.registry.observe(CircuitChanged("redis", open=False, reason="answers"))
    for _ in range(100):
        traffic.call()
    assert traffic.metric(Metric.WRITE_AVAILABILITY) == pytest.approx(0.75)


QUICK = History({Metric.WRITE_LATENCY: 0.00025}, {Metric.WRITE_LATENCY: 0.001})


def make_calibrated(history: History = QUICK) -> Traffic:
    traffic = Traffic()
    traffic.registry.remember("redis", history)
    return traffic


def burst(
    traffic: Traffic, *, calls: int = 3000, seconds: int = 3, latency_s: float = 0.0053
) -> None:
    """Make many slow calls within a few seconds."""
    for _ in range(seconds):
        for _ in range(calls // seconds):
            traffic.call(latency_s)
        traffic.clock.elapsed_s += 1


def latencies(traffic: Traffic) -> tuple[float, float]:
    metrics, p99 = traffic.registry.candidate_metrics("redis")
    return metrics[Metric.WRITE_LATENCY], p99[Metric.WRITE_LATENCY]


def test_history_is_replaced_by_lasting_traffic() -> None:
    traffic = make_calibrated(History({Metric.WRITE_LATENCY: 0.010}, {Metric.WRITE_LATENCY: 0.030}))
    assert latencies(traffic) == (0.010, 0.030)
    for _ in range(int(LATENCY_HALF_LIFE_S)):
        traffic.call(0.002)
        traffic.clock.elapsed_s += 1
    assert traffic.metric(Metric.WRITE_LATENCY) == pytest.approx(0.006, rel=0.01)
    for _ in range(3000):
        traffic.call(0.002)
        traffic.clock.elapsed_s += 1
    assert list(latencies(traffic)) == pytest.approx([0.002, 0.002], rel=0.06)


def test_a_burst_has_little_effect_and_fades() -> None:
    traffic = make_calibrated()
    burst(traffic)
    mean, p99 = latencies(traffic)
    assert 0.00025 < mean < 0.0003
    assert 0.001 < p99 < 0.0011
    traffic.clock.elapsed_s += 10 * LATENCY_HALF_LIFE_S
    assert list(latencies(traffic)) == pytest.approx([0.00025, 0.001], rel=1e-3)


def test_a_burst_among_calm_traffic_counts_by_its_seconds_not_by_its_calls() -> None:
    traffic = make_calibrated()
    for _ in range(600):
        traffic.call(0.00025)
        traffic.clock.elapsed_s += 1
    burst(traffic)
    assert latencies(traffic)[0] < 0.0003


def test_only_a_new_calibration_resets_the_averages() -> None:
    traffic = make_calibrated()
    burst(traffic, seconds=300)
    slow = latencies(traffic)
    traffic.registry.remember("redis", History(dict(QUICK.metrics), dict(QUICK.p99)))
    assert latencies(traffic) == slow
    traffic.registry.remember("redis", History({Metric.WRITE_LATENCY: 0.0002}))
    assert traffic.registry.candidate_metrics("redis") == ({Metric.WRITE_LATENCY: 0.0002}, {})


def test_a_new_calibration_forgets_no_outage() -> None:
    traffic = make_calibrated()
    for _ in range(100):
        traffic.call()
    traffic.registry.observe(CircuitChanged("redis", open=True, reason="timeouts"))
    traffic.registry.remember("redis", History({Metric.WRITE_LATENCY: 0.0002}))
    traffic.call(1.0, outcome="timeout")
    traffic.call()
    traffic.clock.elapsed_s += AVAILABILITY_HALF_LIFE_S
    assert traffic.metric(Metric.WRITE_AVAILABILITY) == pytest.approx(0.25)


def test_metrics_of_other_replicas_fade_by_the_local_clock() -> None:
    one, two = make_calibrated(), make_calibrated()
    two.clock.elapsed_s += 1e6
    burst(two, seconds=600)
    shared = json.loads(json.dumps(two.registry.snapshot()))
    one.registry.merge([{**shared, "age_s": 0.0}])
    assert one.metric(Metric.WRITE_LATENCY) == pytest.approx(two.metric(Metric.WRITE_LATENCY))
    one.clock.elapsed_s += 10 * LATENCY_HALF_LIFE_S
    assert one.metric(Metric.WRITE_LATENCY) == pytest.approx(0.00025, rel=0.02)
    one.registry.merge([{**shared, "age_s": 10 * LATENCY_HALF_LIFE_S}])
    assert one.metric(Metric.WRITE_LATENCY) == pytest.approx(0.00025, rel=0.02)


def test_metrics_of_others_from_before_a_calibration_are_ignored() -> None:
    one, two = make_calibrated(), make_calibrated()
    burst(two, seconds=600)
    one.registry.remember("redis", History({Metric.WRITE_LATENCY: 0.0002}))
    one.registry.merge([two.registry.snapshot()])
    assert one.metric(Metric.WRITE_LATENCY) == 0.0002
    assert one.metric(Metric.WRITE_THROUGHPUT) is None


def test_a_system_without_calls_has_no_metrics() -> None:
    assert Traffic().registry.candidate_metrics("redis") == ({}, {})


def test_other_observations_are_ignored() -> None:
    traffic = Traffic()
    traffic.registry.observe(RequestFinished("GET", "/v1", 200, 0.1))
    assert traffic.registry.statistics("redis") == []


def test_a_forgotten_system_leaves_no_metrics() -> None:
    traffic = Traffic()
    traffic.call()
    traffic.registry.remember("redis", History({Metric.READ_LATENCY: 1}))
    traffic.registry.forget("redis")
    assert traffic.registry.candidate_metrics("redis") == ({}, {})
    assert traffic.registry.statistics("redis") == []


def test_replicas_share_their_metrics_through_snapshots() -> None:
    one, two, both = Traffic(), Traffic(), Traffic()
    for n in range(1, 41):
        (one if n % 4 else two).call(n / 1000)
        both.call(n / 1000)
    one.registry.merge([json.loads(json.dumps(two.registry.snapshot()))])
    (merged,), (expected,) = one.registry.statistics("redis"), both.registry.statistics("redis")
    assert merged == {
        **expected,
        "mean_s": pytest.approx(expected["mean_s"]),
        "deviation_s": pytest.approx(expected["deviation_s"]),
    }
    assert one.metric(Metric.WRITE_AVAILABILITY) == 1.0
    assert one.metric(Metric.WRITE_LATENCY) == pytest.approx(0.021)  # each has seen one second


def test_the_capacity_of_replicas_adds_up() -> None:
    one, two = Traffic(), Traffic()
    one.spread(10, per_second=30)
    two.spread(10, per_second=20)
    one.registry.merge([two.registry.snapshot()])
    assert one.metric(Metric.WRITE_THROUGHPUT) == pytest.approx(50, rel=0.02)
    one.registry.merge([])
    assert one.metric(Metric.WRITE_THROUGHPUT) == pytest.approx(50, rel=0.02)


def test_the_load_of_a_replica_that_has_ended_counts_once() -> None:
    """Another replica takes it over at once; the last snapshot stays for a minute."""
    one, two = Traffic(), Traffic()
    one.spread(10, per_second=30)
    two.spread(10, per_second=20)
    last = two.registry.snapshot()
    for age_s in range(0, 60, 5):
        one.registry.merge([{**last, "age_s": float(age_s)}])
        assert one.metric(Metric.WRITE_THROUGHPUT) == pytest.approx(50, rel=0.03)
        one.spread(5, per_second=50)


def test_a_silent_replica_has_no_rate() -> None:
    one, two = Traffic(), Traffic()
    two.spread(10, per_second=20)
    one.registry.merge([two.registry.snapshot()])
    one.clock.elapsed_s += SUSTAINED_S
    assert one.registry.offered() == {("redis", "write"): pytest.approx(20)}
    one.clock.elapsed_s += 1
    assert one.registry.offered() == {("redis", "write"): 0}


def test_long_silence_neither_breaks_nor_changes_the_averages() -> None:
    traffic = Traffic()
    traffic.call(0.003)
    traffic.call(0.003, outcome="refused")
    traffic.clock.elapsed_s += 10 * 365 * 86_400
    assert traffic.metric(Metric.WRITE_LATENCY) == pytest.approx(0.003)
    assert traffic.metric(Metric.WRITE_AVAILABILITY) == pytest.approx(0.5)


def test_memory_is_bounded_by_classes_not_by_calls() -> None:
    traffic = Traffic()
    for n in range(5000):
        traffic.call(n / 1000, class_name=f"class_{n % 3}")
        traffic.clock.elapsed_s += 0.1
    series = traffic.registry.snapshot()["series"]
    assert len(series) == 3
    assert all(len(row["histogram"]) <= BUCKETS for row in series)


def test_the_percentile_of_a_system_is_that_of_all_its_classes_and_replicas() -> None:
    one, two = Traffic(), Traffic()
    for milliseconds in range(1, 101):
        replica = one if milliseconds % 2 else two
        replica.call(milliseconds / 1000, class_name=f"class_{milliseconds % 7}")
    one.registry.merge([json.loads(json.dumps(two.registry.snapshot()))])
    _, p99 = one.registry.candidate_metrics("redis")
    assert p99[Metric.WRITE_LATENCY] == pytest.approx(0.099, rel=0.05)


def test_classes_whose_calls_have_faded_are_forgotten() -> None:
    traffic = Traffic()
    for n in range(100):
        traffic.call(class_name=f"class_{n}")
    for _ in range(60):
        traffic.clock.elapsed_s += 60
        traffic.call()
        series = traffic.registry.snapshot()["series"]
    assert [row["class"] for row in series] == ["articles"]
    assert traffic.metric(Metric.WRITE_LATENCY) == pytest.approx(0.001)


def test_scoring_costs_the_same_for_any_number_of_classes() -> None:
    def calls(classes: int) -> int:
        traffic, counted = Traffic(), 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal counted
            counted += event == "call" and "/placement/" in frame.f_code.co_filename

        for n in range(classes):
            traffic.call(class_name=f"class_{n}")
        traffic.registry.candidate_metrics("redis")  # processes the pending observations
        sys.setprofile(count)
        try:
            traffic.registry.candidate_metrics("redis")
        finally:
            sys.setprofile(None)
        return counted

    assert 0 < calls(1) == calls(300)
