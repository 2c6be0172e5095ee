"""A running attempt: its permitted actions while its lease is uncertain."""

from __future__ import annotations

from math import inf

import pytest

from spark_jobs.runner.control import Control
from spark_jobs.runner.port import Forecast, RunCancelled


def test_only_the_holder_of_the_lease_publishes() -> None:
    control = Control()
    control.hold_until(-inf)
    control.check()  # files of an attempt do no harm
    control.hold_until(inf)
    control.start_publishing()
    control.check()
    control.hold_until(-inf)
    with pytest.raises(RunCancelled):
        control.check()
    assert control.lease_lost
    assert not control.cancelled


def test_a_run_without_a_queue_has_no_lease_to_lose() -> None:
    control = Control()
    control.start_publishing()
    assert not control.lease_lost
    control.cancel()
    with pytest.raises(RunCancelled):
        control.check()


def test_a_lost_lease_stays_lost_when_the_worker_returns() -> None:
    control = Control()
    control.hold_until(-inf)
    with pytest.raises(RunCancelled):
        control.start_publishing()
    control.hold_until(inf)
    assert control.lease_lost
    with pytest.raises(RunCancelled):
        control.check()


def test_the_remaining_time_counts_the_forecast_stages() -> None:
    """Reading an input ends before the forecast, so its duration does not count."""
    control = Control()
    control.plan(["read records", "count", "rank"])
    control.start("read records")
    control.end("read records", rows=1, seconds=1e9, counters={})
    control.set_forecast(Forecast({"records": 1}, time_s=1e6))
    control.start("count")
    assert control.snapshot()["eta_s"] > 0
    control.end("count", rows=1, seconds=1e7, counters={})
    control.start("rank")
    assert control.snapshot()["eta_s"] == 0
