"""One staleness probe at a time among all replicas; the lease of a failed replica is taken over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Conflict, Unavailable
from mediator.coordination.connecting import connect
from mediator.coordination.leases import Leases
from mediator.schema.parse import parse_schema
from mediator.staleness_probes import service
from mediator.staleness_probes.model import ProbeRequest
from mediator.staleness_probes.service import StalenessProbes
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.data.memory_plane import MemoryPlane, routing_model
from tests.process.service import NOWHERE, unique

LONG = ProbeRequest(database="news", class_name="notes", count=1_000, rate=10.0)
SHORT = ProbeRequest(database="news", class_name="notes", count=2, rate=100.0)


@dataclass
class Replica:
    """The probe service of one replica."""

    plane: MemoryPlane
    probes: StalenessProbes

    async def state(self) -> str:
        described = self.probes.describe()
        assert described is not None
        return str(described["state"])

    async def has_ended(self) -> bool:
        return await self.state() != "running"


@asynccontextmanager
async def replica(url: str) -> AsyncIterator[Replica]:
    schema = parse_schema("news", {"classes": {"notes": {"fields": {"n": {"type": "integer"}}}}})
    plane, redis = MemoryPlane(routing_model(1, schema)), connect(url)
    probes = StalenessProbes(plane, SystemClock(), None, Leases(redis))
    try:
        yield Replica(plane, probes)
    finally:
        await probes.stop()
        await redis.aclose()


@pytest.fixture(autouse=True)
def own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LEASE_NAME", unique("probe"))
    # A machine that stalls for seconds must not lose a lease.
    monkeypatch.setattr(service, "LEASE_S", 120.0)


@pytest.fixture
async def pair(redis_config: SystemConfig) -> AsyncIterator[tuple[Replica, Replica]]:
    async with replica(redis_config.url) as one, replica(redis_config.url) as other:
        yield one, other


async def test_a_second_replica_cannot_start_a_probe_meanwhile(
    pair: tuple[Replica, Replica],
) -> None:
    one, other = pair
    await one.probes.start(LONG)
    with pytest.raises(Conflict, match="Another replica"):
        await other.probes.start(SHORT)
    assert other.probes.describe() is None
    await one.probes.stop()
    for member in (other, one, other):
        await member.probes.start(SHORT)
        await eventually(member.has_ended)
        assert await member.state() == "done"


async def test_of_concurrent_starts_one_succeeds(pair: tuple[Replica, Replica]) -> None:
    results = await asyncio.gather(
        *(member.probes.start(LONG) for member in (*pair, *pair)), return_exceptions=True
    )
    assert sorted(isinstance(result, Conflict) for result in results) == [False, True, True, True]


async def test_a_probe_stopped_before_it_starts_releases_the_lease(
    pair: tuple[Replica, Replica],
) -> None:
    one, other = pair
    await asyncio.gather(one.probes.start(LONG), one.probes.stop())
    await one.probes.stop()
    await other.probes.start(LONG)


async def test_the_lease_of_a_failed_replica_is_taken_over(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    monkeypatch.setattr(service, "LEASE_S", 0.2)
    monkeypatch.setattr(service, "RENEW_S", 600.0)  # as if it had stopped
    await one.probes.start(LONG)

    async def takes_over() -> bool:
        try:
            await other.probes.start(LONG)
        except Conflict:
            return False
        return True

    await eventually(takes_over)


async def test_a_probe_that_lost_its_lease_fails_and_removes_its_objects(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch, redis_config: SystemConfig
) -> None:
    one, _ = pair
    monkeypatch.setattr(service, "RENEW_S", 0.05)
    await one.probes.start(LONG)

    async def has_objects() -> bool:
        return any(one.plane.objects.values())

    await eventually(has_objects)
    redis = connect(redis_config.url)
    await redis.set(f"portolan:lease:{service.LEASE_NAME}", "another", px=600_000)
    await redis.aclose()
    await eventually(one.has_ended)
    assert await one.state() == "failed"
    described = one.probes.describe()
    assert described is not None
    assert "lease" in described["report"]["reasons"][0]
    assert not any(one.plane.objects.values())


async def test_the_lease_is_renewed_while_a_probe_runs(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch, redis_config: SystemConfig
) -> None:
    one, other = pair
    monkeypatch.setattr(service, "RENEW_S", 0.05)
    await one.probes.start(LONG)
    redis = connect(redis_config.url)
    ttls_ms: list[int] = []

    async def is_renewed() -> bool:
        ttls_ms.append(await redis.pttl(f"portolan:lease:{service.LEASE_NAME}"))
        return ttls_ms[-1] > min(ttls_ms)

    await eventually(is_renewed)
    await redis.aclose()
    with pytest.raises(Conflict):
        await other.probes.start(SHORT)
    assert not await one.has_ended()


async def test_without_redis_no_probe_starts() -> None:
    async with replica(NOWHERE) as alone:
        with pytest.raises(Unavailable):
            await alone.probes.start(SHORT)
        assert alone.probes.describe() is None
