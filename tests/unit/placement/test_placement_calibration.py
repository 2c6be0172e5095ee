"""Calibration through the store port, against an in-memory store with configurable faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from mediator.placement.calibration import calibrate
from mediator.schema.annotations import Metric
from mediator.schema.tree import SCRATCH_DATABASE
from mediator.stores.port import (
    Fragment,
    Read,
    Record,
    Status,
    Store,
    StoreRefused,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)


class ScratchStore:
    """In-memory counters; every `fail_every`th single call fails (all if 1)."""

    def __init__(
        self,
        fail_every: int = 0,
        fail_creates: bool = False,
        forgets: bool = False,
        ignores: bool = False,
    ) -> None:
        self.ignores = ignores
        self.forgets = forgets
        self.config = SystemConfig("memory", "redis", "redis://nowhere")
        self.fail_every = fail_every
        self.fail_creates = fail_creates
        self.calls = 0
        self.prepared: list[Fragment] = []
        self.dropped: list[Fragment] = []
        self.counters: dict[str, int] = {}

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        self.prepared.append(fragment)

    async def drop(self, fragment: Fragment) -> None:
        self.dropped.append(fragment)

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        self._single()
        counts = [None if self.forgets else self.counters.get(call.id) for call in calls]
        return [
            None if count is None else Record("", 1, {}, {"counter": count}) for count in counts
        ]

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        for call in calls:
            if call.kind is WriteKind.CREATE:
                if self.fail_creates:
                    raise StoreRefused("disk full")
                self.counters[call.id] = 0
            else:
                self._single()
                self.counters[call.id] += 1
        return [WriteResult(Status.MISSING if self.ignores else Status.APPLIED) for _ in calls]

    def _single(self) -> None:
        self.calls += 1
        if self.fail_every and self.calls % self.fail_every == 0:
            raise StoreUnavailable("gone")


async def test_a_calibration_measures_every_metric_and_leaves_nothing_behind() -> None:
    store = ScratchStore()
    calibration = await calibrate(cast(Store, store), budget_s=0.05, concurrency=4)
    assert set(calibration.metrics) == set(Metric)
    assert all(value > 0 for value in calibration.metrics.values())
    assert calibration.metrics[Metric.WRITE_AVAILABILITY] == 1
    assert calibration.p99[Metric.WRITE_LATENCY] >= calibration.metrics[Metric.WRITE_LATENCY]
    assert calibration.samples["write"] > 24
    assert sum(store.counters.values()) == calibration.samples["write"] + 1
    assert store.prepared == store.dropped
    assert store.prepared[0].database == SCRATCH_DATABASE
    assert store.prepared[0].class_name.startswith("calibration_")


async def test_two_calibrations_never_share_a_scratch_class() -> None:
    store = ScratchStore()
    for _ in range(2):
        await calibrate(cast(Store, store), budget_s=0.001, concurrency=1)
    assert store.prepared[0].class_name != store.prepared[1].class_name


async def test_calls_that_fail_lower_the_availability() -> None:
    calibration = await calibrate(cast(Store, ScratchStore(fail_every=4)), budget_s=0.05)
    assert calibration.metrics[Metric.READ_AVAILABILITY] == pytest.approx(0.75, abs=0.15)


@pytest.mark.parametrize(
    "store",
    [
        ScratchStore(fail_every=1),
        ScratchStore(fail_creates=True),
        ScratchStore(forgets=True),
        ScratchStore(ignores=True),
    ],
)
async def test_a_failing_store_is_reported_and_its_scratch_class_dropped(
    store: ScratchStore,
) -> None:
    with pytest.raises((StoreUnavailable, StoreRefused)):
        await calibrate(cast(Store, store), budget_s=0.01)
    assert store.prepared == store.dropped
