"""The staleness probe on a store with an exactly known staleness, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mediator.base.errors import Unavailable
from mediator.staleness_probes.model import Measurement, ProbePlan
from mediator.staleness_probes.path import Versions
from mediator.staleness_probes.probe import MIN_PAUSE_S, PAUSE_SHARE, Probe, ProbeResults
from mediator.staleness_probes.report import summary
from mediator.stores.port import Fragment, Read, Write, WriteKind
from tests.conformance.stale_store import (
    Constant,
    PerServer,
    Replicas,
    StaleStore,
    Uniform,
    Windows,
)
from tests.conformance.virtual_time import LoopClock, run_virtually

FRAGMENT = Fragment("stale", "d", "c", {}, {"main": ()})


class StalePath:
    """Writes to one server, reads from another; requests and answers are delayed."""

    def __init__(self, windows: Windows, delay_s: Callable[[], float]) -> None:
        self.replicas: Replicas[Any, Any] = Replicas(("near", "far"), windows, LoopClock())
        self.store = StaleStore(self.replicas, LoopClock())
        self.reads = self.written = 0
        self._far = self.store.at("far")
        self._delay_s = delay_s

    async def create(self, id_: str) -> Versions:
        return await self._write(id_, WriteKind.CREATE)

    async def write(self, id_: str) -> Versions:
        self.written += 1
        return await self._write(id_, WriteKind.REPLACE)

    async def remove(self, id_: str) -> None:
        await self._write(id_, WriteKind.DELETE)

    async def read(self, id_: str) -> Versions | None:
        self.reads += 1
        await asyncio.sleep(self._delay_s())
        [record] = await self._far.read([Read(FRAGMENT, id_)])
        await asyncio.sleep(self._delay_s())
        return record.versions if record else None

    def exist(self) -> list[bool]:
        """Return for each created object whether the leader still has it."""
        rows = map(self.replicas.newest, self.replicas)
        return [row is not None and row.is_live for row in rows]

    async def _write(self, id_: str, kind: WriteKind) -> Versions:
        await asyncio.sleep(self._delay_s())
        [result] = await self.store.write([Write(FRAGMENT, id_, kind, "o", ("main",))])
        await asyncio.sleep(self._delay_s())
        return result.versions


def run_probe(path: StalePath, plan: ProbePlan) -> ProbeResults:
    probed = ProbeResults()
    run_virtually(Probe(path, LoopClock()).run(plan, probed))
    return probed


seconds = st.floats(0, 20, allow_subnormal=False)
delays = st.floats(0, 0.2, allow_subnormal=False)


@given(window=seconds, max_delay_s=delays, seed=st.integers(0, 99), count=st.integers(1, 8))
def test_the_true_staleness_lies_between_the_bounds(
    window: float, max_delay_s: float, seed: int, count: int
) -> None:
    """A write is visible `window` after it took effect, between its sending and acknowledgement.

    Only the path takes time, so this is exact.
    """
    random = Random(seed)
    path = StalePath(PerServer({"far": window}), lambda: random.uniform(0, max_delay_s))
    probed = run_probe(path, ProbePlan(count, rate=5.0, timeout_s=60.0))
    assert len(probed.measurements) == count
    for measurement in probed.measurements:
        assert measurement.upper_s is not None
        assert measurement.lower_s <= window + 1e-9
        assert measurement.upper_s >= window - 1e-9
        # The width is at most the delays of the path and the pause between two reads.
        pause = max(MIN_PAUSE_S, PAUSE_SHARE * measurement.upper_s)
        assert measurement.upper_s - max(measurement.lower_s, 0) <= pause + 8 * max_delay_s + 1e-9


@settings(max_examples=25)
@given(minimum=seconds, width=seconds, seed=st.integers(0, 99))
def test_windows_that_differ_are_distinguished(minimum: float, width: float, seed: int) -> None:
    path = StalePath(Uniform(minimum, minimum + width, seed), lambda: 0.01)
    probed = run_probe(path, ProbePlan(10, rate=10.0, timeout_s=60.0))
    assert max(measurement.lower_s for measurement in probed.measurements) <= minimum + width + 1e-9
    assert min(measurement.upper_s or 0 for measurement in probed.measurements) >= minimum - 1e-9


@pytest.mark.parametrize("window", [0.0, 0.01, 0.1, 1.0])
def test_the_windows_of_the_sheet_are_measured(window: float) -> None:
    path = StalePath(Constant(window), lambda: 0.0005)
    report = summary("far", run_probe(path, ProbePlan(50, 50.0, 5.0)), window)
    assert (report.count, report.unseen, report.failures) == (50, 0, 0)
    assert report.surely_beyond == 0
    lower, upper = report.lower_s["max"] or 0.0, report.upper_s["p50"] or 0.0
    assert lower <= window <= upper
    assert upper - lower <= 0.004 + 0.06 * window


def test_a_write_that_is_never_seen_has_no_upper_bound() -> None:
    path = StalePath(Constant(1e6), lambda: 0.001)
    probed = run_probe(path, ProbePlan(3, 10.0, timeout_s=2.0))
    assert [measurement.upper_s for measurement in probed.measurements] == [None] * 3
    assert all(1.8 <= measurement.lower_s <= 2 for measurement in probed.measurements)
    report = summary("far", probed, 1.0)
    assert (report.unseen, report.surely_beyond, report.possibly_beyond) == (3, 1, 1)
    assert report.upper_s["p50"] is None
    assert sum(bucket.upper for bucket in report.histogram) == 3


@settings(max_examples=25)
@given(st.integers(1, 40), st.floats(0.5, 100), st.floats(0.01, 1), st.floats(0, 5))
@example(
    count=300, rate=100.0, timeout_s=1.0, window=1e6
)  # more writes than the lanes have time for
def test_a_probe_ends_in_time_and_leaves_no_objects(
    count: int, rate: float, timeout_s: float, window: float
) -> None:
    plan, ended = ProbePlan(count, rate, timeout_s), 0.0
    path = StalePath(Constant(window), lambda: 0.001)

    async def run() -> ProbeResults:
        nonlocal ended
        probed = ProbeResults()
        await Probe(path, LoopClock()).run(plan, probed)
        ended = LoopClock().monotonic()
        return probed

    probed = run_virtually(run())
    assert ended <= plan.max_duration_s + timeout_s + 0.1
    assert path.written == len(probed.measurements) <= count
    assert not probed.left_behind
    assert not any(path.exist())


class FailingPath(StalePath):
    """Fails every other read and all deletes."""

    async def read(self, id_: str) -> Versions | None:
        if self.reads % 2:
            self.reads += 1
            raise Unavailable("It is away.", system="stale")
        return await super().read(id_)

    async def remove(self, id_: str) -> None:
        raise Unavailable("It is away.", system="stale")


def test_failures_are_counted_and_objects_left_behind_are_listed() -> None:
    probed = run_probe(FailingPath(Constant(0), lambda: 0.001), ProbePlan(10, 0.5, 0.1))
    assert probed.failures == 10
    assert probed.reasons == ["It is away."]
    assert len(probed.left_behind) == 2
    assert probed.left_behind[0].startswith("portolan-probe-")
    report = summary("far", probed, 1.0)
    assert (report.count, report.surely_beyond, report.lower_s["p50"]) == (0, None, None)


def test_a_probe_that_is_stopped_removes_its_objects() -> None:
    path = StalePath(Constant(1e6), lambda: 0.001)

    async def run_and_stop() -> None:
        task = asyncio.create_task(
            Probe(path, LoopClock()).run(ProbePlan(50, 50, 50), ProbeResults())
        )
        await asyncio.sleep(0.5)
        assert path.written
        task.cancel()
        await asyncio.wait([task])

    run_virtually(run_and_stop())
    assert path.exist()
    assert not any(path.exist())


def test_bounds_are_sorted_into_buckets_and_shares() -> None:
    probed = ProbeResults([Measurement(0, 0.001), Measurement(0.002, 0.02), Measurement(70, None)])
    report = summary("fresh", probed, 0.01)
    non_empty = [
        (bucket.le_s, bucket.lower, bucket.upper)
        for bucket in report.histogram
        if bucket.lower or bucket.upper
    ]
    assert non_empty == [(0.0, 1, 0), (0.001, 0, 1), (0.002, 1, 0), (0.02, 0, 1), (None, 1, 1)]
    assert (report.surely_beyond, report.possibly_beyond) == (1 / 3, 2 / 3)
    assert report.lower_s == {"p50": 0.002, "p90": 70, "p99": 70, "max": 70}
    assert report.upper_s == {"p50": 0.02, "p90": None, "p99": None, "max": None}
