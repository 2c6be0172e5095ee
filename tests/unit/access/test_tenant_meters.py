"""Limits of tenants: what is let in, what is charged, what is known of what they keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from app.admin.api.tenants import OwnLimits
from app.http.problems import problem_of
from app.security.rate_limits import TenantLimiter
from mediator.access.metering import Meter, TenantLimits
from mediator.access.stored_objects import COUNTED_EVERY_S, StoredObjects
from mediator.base.errors import MediatorError, TooManyRequests, Unavailable
from mediator.base.observation import Observation, RequestRefused


class SetClock:
    """A clock that tests set."""

    since_s = 1000.0

    def now(self) -> float:
        return 1_800_000_000.0

    def monotonic(self) -> float:
        return self.since_s


class House:
    """A limiter, what it is told of, and a clock that stands still."""

    def __init__(self, **limits: Any) -> None:
        self.clock = SetClock()
        self.limits = replace(TenantLimits(), **limits)
        self.told: list[Observation] = []
        self.counts: dict[str, int | None] = {}
        self.on_count: Callable[[], None] = lambda: None
        self.stored = StoredObjects(self._count, self.clock)
        self.limiter = TenantLimiter(
            lambda _: self.limits, self.stored, self.clock, self.told.append
        )

    async def _count(self, database: str) -> int:
        self.on_count()
        count = self.counts[database]
        if count is None:
            raise Unavailable("It is away.", system="redis")
        self.clock.since_s += 1
        return count

    def meter(self) -> Meter:
        meter = self.limiter.enter("acme")
        self.limiter.leave(meter)
        return meter

    async def measure(self, **databases: int | None) -> None:
        self.counts = databases
        self.clock.since_s += 10 * COUNTED_EVERY_S
        await self.stored.measure({"acme": tuple(databases)})


def test_a_bucket_lets_its_burst_through_and_then_its_rate() -> None:
    house = House(rate=0.5, burst=3)
    for _ in range(3):
        house.limiter.enter("acme")
    house.limiter.enter("globex")
    with pytest.raises(TooManyRequests) as refused:
        house.limiter.enter("acme")
    problem = problem_of(refused.value)
    assert (problem.type.status, problem.headers) == (429, (("Retry-After", "2"),))
    assert problem.extra == {"limit": "rate"}
    assert house.told == [RequestRefused("acme", "rate")]
    house.clock.since_s += 2
    house.limiter.enter("acme")
    with pytest.raises(TooManyRequests):
        house.limiter.enter("acme")
    house.clock.since_s += 1e9
    for _ in range(3):
        house.limiter.enter("acme")
    with pytest.raises(TooManyRequests):
        house.limiter.enter("acme")


def test_a_rate_of_next_to_nothing_is_answered_with_a_day() -> None:
    house = House(rate=5e-324, burst=1)
    house.meter()
    with pytest.raises(TooManyRequests) as refused:
        house.meter()
    assert problem_of(refused.value).headers == (("Retry-After", "86400"),)


def test_requests_under_way_are_bounded_until_they_are_answered() -> None:
    house = House(in_flight=2)
    house.limiter.enter("acme")
    meter = house.limiter.enter("acme")
    with pytest.raises(TooManyRequests):
        house.limiter.enter("acme")
    house.limiter.leave(meter)
    house.limiter.enter("acme")
    assert house.told == [RequestRefused("acme", "in_flight")]


def test_other_limits_hold_for_an_account_that_is_there() -> None:
    house = House()
    first = house.meter()
    assert not first.bounds_operations
    house.limits = TenantLimits(objects=1)
    assert house.meter() is first
    assert first.bounds_operations


def test_records_are_made_good_at_the_rate_and_saved_up_for_a_while() -> None:
    house = House(rows_rate=100)
    meter = house.meter()
    meter.spend(500)
    assert meter.debt_s == 5
    house.clock.since_s += 5
    assert meter.debt_s == 0
    house.clock.since_s += 1e6
    meter.spend(1500)
    assert meter.debt_s == 5  # a thousand were saved up


def test_a_rate_that_is_taken_away_leaves_no_debt() -> None:
    house = House(rows_rate=1, objects=5)
    house.meter().spend(100)
    house.limits = TenantLimits(objects=5)
    assert house.meter().debt_s == 0


def test_what_is_not_bounded_costs_nothing() -> None:
    meter = House().meter()
    meter.spend(1e9)
    meter.grew(10**9)
    assert meter.debt_s <= 0
    assert meter.room == float("inf")
    assert not meter.is_over(1e9)
    assert not meter.bounds_operations


@pytest.mark.parametrize("name", ["query_rows", "query_seconds", "rows_rate", "objects"])
def test_operations_are_bounded_by_each_limit_that_is_about_them(name: str) -> None:
    assert House(**{name: 1}).meter().bounds_operations


async def test_what_a_tenant_keeps_is_the_last_count_and_what_was_written_since() -> None:
    house = House(objects=100)
    meter = house.meter()
    meter.grew(5)
    assert meter.room == 95
    await house.measure(one=60, two=10)
    assert meter.room == 30
    meter.grew(-1)
    assert meter.room == 31
    assert house.stored.known == {"acme": 69}


async def test_what_is_written_during_a_count_counts_besides() -> None:
    house = House(objects=100)
    meter = house.meter()
    house.on_count = lambda: meter.grew(3)
    await house.measure(one=60)
    assert meter.room == 37


async def test_what_cannot_be_counted_is_known_as_before() -> None:
    house = House(objects=100)
    await house.measure(one=60)
    with pytest.raises(Unavailable):
        await house.measure(one=None)
    assert house.meter().room == 40
    await house.measure(one=99)
    assert house.meter().room == 1


async def test_counting_rests_longer_the_longer_it_takes() -> None:
    house = House(objects=100)
    await house.measure(**{f"d{n}": 1 for n in range(10)})  # which takes ten seconds
    house.counts = dict.fromkeys(house.counts, 2)
    databases: Mapping[str, tuple[str, ...]] = {"acme": tuple(house.counts)}
    house.clock.since_s += 199
    await house.stored.measure(databases)
    assert house.meter().room == 90
    house.clock.since_s += 1
    await house.stored.measure(databases)
    assert house.meter().room == 80


async def test_a_tenant_that_is_bounded_no_more_is_forgotten() -> None:
    house = House(objects=100)
    await house.measure(one=60)
    house.clock.since_s += 1e6
    await house.stored.measure({})
    assert house.stored.known == {}


def test_a_full_tenant_is_told_so() -> None:
    full = House(objects=7).meter().full()
    assert isinstance(full, MediatorError)
    problem = problem_of(full)
    assert (problem.type.slug, problem.type.status) == ("insufficient-storage", 507)
    assert problem.extra == {"limit": "objects", "objects": 7}


def test_every_limit_can_be_set_for_a_tenant() -> None:
    assert set(OwnLimits.model_fields) == {field.name for field in fields(TenantLimits)}
