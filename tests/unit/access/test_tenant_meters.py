"""Limits of tenants: admission, charges, and the number of their objects."""

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
from tests.conformance.virtual_time import HandClock


class Tenant:
    """A tenant's limiter, its events, its counts, and a clock that the test advances."""

    def __init__(self, **limits: Any) -> None:
        self.clock = HandClock()
        self.limits = replace(TenantLimits(), **limits)
        self.events: list[Observation] = []
        self.counts: dict[str, int | None] = {}
        self.on_count: Callable[[], None] = lambda: None
        self.stored = StoredObjects(self._count, self.clock)
        self.limiter = TenantLimiter(
            lambda _: self.limits, self.stored, self.clock, self.events.append
        )

    async def _count(self, database: str) -> int:
        self.on_count()
        count = self.counts[database]
        if count is None:
            raise Unavailable("It is away.", system="redis")
        self.clock.elapsed_s += 1
        return count

    def meter(self) -> Meter:
        meter = self.limiter.enter("acme")
        self.limiter.leave(meter)
        return meter

    async def measure(self, **databases: int | None) -> None:
        self.counts = databases
        self.clock.elapsed_s += 10 * COUNTED_EVERY_S
        await self.stored.measure({"acme": tuple(databases)})


def test_a_bucket_lets_its_burst_through_and_then_its_rate() -> None:
    tenant = Tenant(rate=0.5, burst=3)
    for _ in range(3):
        tenant.limiter.enter("acme")
    tenant.limiter.enter("globex")
    with pytest.raises(TooManyRequests) as refused:
        tenant.limiter.enter("acme")
    problem = problem_of(refused.value)
    assert (problem.type.status, problem.headers) == (429, (("Retry-After", "2"),))
    assert problem.extra == {"limit": "rate"}
    assert tenant.events == [RequestRefused("acme", "rate")]
    tenant.clock.elapsed_s += 2
    tenant.limiter.enter("acme")
    with pytest.raises(TooManyRequests):
        tenant.limiter.enter("acme")
    tenant.clock.elapsed_s += 1e9
    for _ in range(3):
        tenant.limiter.enter("acme")
    with pytest.raises(TooManyRequests):
        tenant.limiter.enter("acme")


def test_the_maximum_retry_after_is_a_day() -> None:
    tenant = Tenant(rate=5e-324, burst=1)
    tenant.meter()
    with pytest.raises(TooManyRequests) as refused:
        tenant.meter()
    assert problem_of(refused.value).headers == (("Retry-After", "86400"),)


def test_requests_under_way_are_bounded_until_they_are_answered() -> None:
    tenant = Tenant(in_flight=2)
    tenant.limiter.enter("acme")
    meter = tenant.limiter.enter("acme")
    with pytest.raises(TooManyRequests):
        tenant.limiter.enter("acme")
    tenant.limiter.leave(meter)
    tenant.limiter.enter("acme")
    assert tenant.events == [RequestRefused("acme", "in_flight")]


def test_changed_limits_hold_for_an_existing_meter() -> None:
    tenant = Tenant()
    first = tenant.meter()
    assert not first.bounds_operations
    tenant.limits = TenantLimits(objects=1)
    assert tenant.meter() is first
    assert first.bounds_operations


def test_a_debt_is_paid_at_the_rate_and_credit_is_bounded() -> None:
    tenant = Tenant(rows_rate=100)
    meter = tenant.meter()
    meter.spend(500)
    assert meter.debt_s == 5
    tenant.clock.elapsed_s += 5
    assert meter.debt_s == 0
    tenant.clock.elapsed_s += 1e6
    meter.spend(1500)
    assert meter.debt_s == 5  # a thousand were saved up


def test_removing_a_rate_clears_the_debt() -> None:
    tenant = Tenant(rows_rate=1, objects=5)
    tenant.meter().spend(100)
    tenant.limits = TenantLimits(objects=5)
    assert tenant.meter().debt_s == 0


def test_without_limits_nothing_is_charged() -> None:
    meter = Tenant().meter()
    meter.spend(1e9)
    meter.adjust(10**9)
    assert meter.debt_s <= 0
    assert meter.room == float("inf")
    assert not meter.is_over(1e9)
    assert not meter.bounds_operations


@pytest.mark.parametrize("name", ["query_rows", "query_seconds", "rows_rate", "objects"])
def test_operations_are_bounded_by_each_limit_that_is_about_them(name: str) -> None:
    assert Tenant(**{name: 1}).meter().bounds_operations


async def test_the_objects_of_a_tenant_are_the_last_count_and_the_writes_since() -> None:
    tenant = Tenant(objects=100)
    meter = tenant.meter()
    meter.adjust(5)
    assert meter.room == 95
    await tenant.measure(one=60, two=10)
    assert meter.room == 30
    meter.adjust(-1)
    assert meter.room == 31
    assert tenant.stored.counts == {"acme": 69}


async def test_writes_during_a_count_are_added() -> None:
    tenant = Tenant(objects=100)
    meter = tenant.meter()
    tenant.on_count = lambda: meter.adjust(3)
    await tenant.measure(one=60)
    assert meter.room == 37


async def test_a_failed_count_keeps_the_former_one() -> None:
    tenant = Tenant(objects=100)
    await tenant.measure(one=60)
    with pytest.raises(Unavailable):
        await tenant.measure(one=None)
    assert tenant.meter().room == 40
    await tenant.measure(one=99)
    assert tenant.meter().room == 1


async def test_the_pause_between_counts_grows_with_their_duration() -> None:
    tenant = Tenant(objects=100)
    await tenant.measure(**{f"d{n}": 1 for n in range(10)})  # which takes ten seconds
    tenant.counts = dict.fromkeys(tenant.counts, 2)
    databases: Mapping[str, tuple[str, ...]] = {"acme": tuple(tenant.counts)}
    tenant.clock.elapsed_s += 199
    await tenant.stored.measure(databases)
    assert tenant.meter().room == 90
    tenant.clock.elapsed_s += 1
    await tenant.stored.measure(databases)
    assert tenant.meter().room == 80


async def test_a_tenant_without_limits_is_forgotten() -> None:
    tenant = Tenant(objects=100)
    await tenant.measure(one=60)
    tenant.clock.elapsed_s += 1e6
    await tenant.stored.measure({})
    assert tenant.stored.counts == {}


def test_a_full_tenant_is_refused_with_its_limit() -> None:
    full = Tenant(objects=7).meter().full()
    assert isinstance(full, MediatorError)
    problem = problem_of(full)
    assert (problem.type.slug, problem.type.status) == ("insufficient-storage", 507)
    assert problem.extra == {"limit": "objects", "objects": 7}


def test_every_limit_can_be_set_for_a_tenant() -> None:
    assert set(OwnLimits.model_fields) == {field.name for field in fields(TenantLimits)}
