"""Work of flows and deliveries is admitted when its tenant has room, and is known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.security import metered_work
from app.security.metered_work import MeteredWork
from mediator.access import metering
from mediator.access.metered_plane import MeteredPlane
from mediator.access.metering import Delay
from mediator.base.errors import Unavailable
from mediator.base.observation import RequestDelayed
from tests.faults.conditions import eventually
from tests.unit.access.test_tenant_meters import Tenant

PLANE: Any = object()


def metered(tenant: Tenant, owner: Any = lambda _: "acme") -> MeteredWork:
    return MeteredWork(tenant.limiter, owner, tenant.events.append)


async def waits(tenant: Tenant) -> bool:
    return bool(tenant.events)


async def test_a_request_waits_until_another_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metered_work, "_MAX_PAUSE_S", 0.001)
    tenant = Tenant(in_flight=1)
    flows, meter = metered(tenant), tenant.limiter.enter("acme")

    async def invoke() -> int:
        async with flows.admitted(PLANE, "shop") as plane:
            assert plane is PLANE  # nothing bounds its operations
            return meter.in_flight

    waiting = asyncio.create_task(invoke())
    await eventually(lambda: waits(tenant))
    assert not waiting.done()
    tenant.limiter.leave(meter)
    assert await waiting == 1
    assert (meter.in_flight, meter.admitted) == (0, 2)
    assert tenant.events == [RequestDelayed("acme", "in_flight")]


async def test_a_limit_that_is_raised_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metered_work, "_MAX_PAUSE_S", 0.001)
    tenant = Tenant(rate=1e-6, burst=1)
    tenant.meter()

    async def invoke() -> None:
        async with metered(tenant).admitted(PLANE, "shop"):
            pass

    waiting = asyncio.create_task(invoke())
    await eventually(lambda: waits(tenant))
    tenant.limits = Tenant(objects=5).limits
    await waiting
    async with metered(tenant).admitted(PLANE, "shop") as plane:
        assert isinstance(plane, MeteredPlane)


async def test_nothing_is_invoked_while_the_tenant_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metered_work, "_MAX_PAUSE_S", 0.001)
    failures = [Unavailable("It is away.", system="catalogue")]

    def owner(_: str) -> str | None:
        if failures:
            raise failures.pop()
        return None

    tenant = Tenant()
    async with metered(tenant, owner).admitted(PLANE, "shop"):
        (meter,) = tenant.limiter.meters
        assert meter.tenant == "operator"
    assert not failures
    assert not tenant.events


def test_what_delays_a_request() -> None:
    tenant = Tenant(in_flight=1, rate=2, burst=1, rows_rate=10)
    meter = tenant.limiter.enter("acme")
    delays = [meter.delay]
    tenant.limiter.leave(meter)
    delays += [meter.delay]
    tenant.clock.elapsed_s += 0.5
    delays += [meter.delay]
    meter.spend(200)
    debt_s = meter.debt_s
    delays += [meter.delay]
    tenant.clock.elapsed_s += debt_s
    delays += [meter.delay]
    in_flight = Delay("in_flight", metering._RECHECK_S)  # noqa: SLF001
    assert delays == [in_flight, Delay("rate", 0.5), None, Delay("rows_rate", debt_s), None]
    meter.enter()
