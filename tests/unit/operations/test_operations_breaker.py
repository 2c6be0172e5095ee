"""The circuit breaker of a store: when it opens, which calls it lets through, when it closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.base.observation import CircuitChanged, Observation, StoreCallFinished
from mediator.stores.guarded import FAILURES_TO_OPEN, FIRST_PAUSE_S, GuardedStore
from mediator.stores.port import (
    Fragment,
    Read,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
)
from tests.conformance.virtual_time import HandClock

CALLS = (Read(Fragment("s", "d", "c", {}, {}), "x"),)


class Scripted:
    """A store whose reads raise the `error` that the test sets."""

    def __init__(self) -> None:
        self.config = SystemConfig("s", "scripted", "memory:")
        self.error: BaseException | None = None
        self.calls = 0

    async def read(self, calls: Any) -> list[None]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return [None for _ in calls]

    async def ping(self) -> None:
        await self.read(())


class Case:
    def __init__(self) -> None:
        self.store, self.clock = Scripted(), HandClock()
        self.observations: list[Observation] = []
        store: Any = self.store
        self.guarded = GuardedStore(store, self.observations.append, self.clock)

    async def fail(self, error: BaseException, times: int = 1) -> None:
        self.store.error = error
        for _ in range(times):
            with pytest.raises(type(error)):
                await self.guarded.read(CALLS)
        self.store.error = None

    async def open(self) -> None:
        await self.fail(StoreUnavailable("away"), FAILURES_TO_OPEN)

    def circuits(self) -> list[bool]:
        return [
            observation.open
            for observation in self.observations
            if isinstance(observation, CircuitChanged)
        ]


@pytest.fixture
def case() -> Case:
    return Case()


async def test_the_breaker_opens_after_consecutive_failures(case: Case) -> None:
    await case.fail(StoreTimeout("slow"), FAILURES_TO_OPEN - 1)
    await case.guarded.read(CALLS)
    await case.fail(StoreTimeout("slow"), FAILURES_TO_OPEN - 1)
    assert case.circuits() == []
    await case.fail(StoreUnavailable("away"))
    assert case.circuits() == [True]
    calls = case.store.calls
    with pytest.raises(StoreUnavailable):
        await case.guarded.read(CALLS)
    assert case.store.calls == calls
    assert 0 < case.guarded.breaker.retry_after_s <= FIRST_PAUSE_S


async def test_a_refusal_is_no_failure(case: Case) -> None:
    await case.fail(StoreRefused("disk full"), 3 * FAILURES_TO_OPEN)
    assert case.circuits() == []
    await case.guarded.read(CALLS)


async def test_one_trial_at_a_time_and_its_success_closes(case: Case) -> None:
    await case.open()
    case.clock.elapsed_s += FIRST_PAUSE_S
    started, released = asyncio.Event(), asyncio.Event()

    async def trial() -> None:
        started.set()
        await released.wait()

    task = asyncio.create_task(case.guarded.guarded(trial))
    await started.wait()
    with pytest.raises(StoreUnavailable):
        await case.guarded.read(CALLS)
    released.set()
    await task
    assert case.circuits() == [True, False]
    await case.guarded.read(CALLS)


async def test_each_failed_trial_doubles_the_pause(case: Case) -> None:
    await case.open()
    pauses = []
    for _ in range(6):
        pauses.append(case.guarded.breaker.retry_after_s)
        case.clock.elapsed_s += pauses[-1]
        await case.fail(StoreUnavailable("away"))
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 8])


async def test_concurrent_failures_do_not_lengthen_the_pause(case: Case) -> None:
    calls = FAILURES_TO_OPEN * 4

    async def away() -> None:
        await asyncio.sleep(0)
        raise StoreUnavailable("away")

    await asyncio.gather(
        *(case.guarded.guarded(away) for _ in range(calls)), return_exceptions=True
    )
    assert case.guarded.breaker.retry_after_s == FIRST_PAUSE_S
    assert case.circuits() == [True]


async def test_a_cancelled_trial_lets_the_next_one_through(case: Case) -> None:
    await case.open()
    case.clock.elapsed_s += FIRST_PAUSE_S
    trial = asyncio.create_task(case.guarded.guarded(asyncio.Event().wait))
    await asyncio.sleep(0)
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    await case.guarded.read(CALLS)
    assert case.circuits() == [True, False]


async def test_a_cancelled_call_is_neither_success_nor_failure(case: Case) -> None:
    await case.fail(StoreUnavailable("away"), FAILURES_TO_OPEN - 1)
    before = len(case.observations)
    await case.fail(asyncio.CancelledError())
    assert len(case.observations) == before
    await case.fail(StoreUnavailable("away"))
    assert case.circuits() == [True]


async def test_every_round_trip_is_observed(case: Case) -> None:
    await case.guarded.read(CALLS * 3)
    await case.fail(StoreTimeout("slow"))
    events = [event for event in case.observations if isinstance(event, StoreCallFinished)]
    assert [(event.count, event.outcome) for event in events] == [(3, "ok"), (1, "timeout")]
