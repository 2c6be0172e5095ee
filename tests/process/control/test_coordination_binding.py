"""A coordination Redis is bound to one installation: others do not start, or stop using it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.commands.doctor.installation import Finding, examine_databases
from app.service.mediators import reading_mediator, writing_mediator
from app.settings.main import CacheSettings, MediatorSettings
from mediator.archive.backup import Backup
from mediator.base.errors import Unavailable
from mediator.coordination.binding import BOUND_TO, BoundToAnother, InstallationBinding
from mediator.coordination.connecting import connect
from mediator.options import Relaying
from mediator.stores.port import SystemConfig
from tests.faults.caching.redis_server import Server, running
from tests.faults.conditions import eventually
from tests.faults.service import Service as ServiceProcess
from tests.process.operation.backups import ignore
from tests.process.service import (
    Service,
    field_on,
    scratch_catalogue,
    scratch_database,
    scratch_systems,
    service,
)

OWN, OTHER = "tests", "another"
"""The installation of every scratch catalogue, and another one."""


@pytest.fixture
def server() -> Iterator[Server]:
    with running("binding") as running_server:
        yield running_server


@pytest.fixture
async def redis(server: Server) -> AsyncIterator[Redis]:
    async with connect(server.url) as client:
        yield client


@pytest.fixture
async def catalogue(postgresql_config: SystemConfig) -> AsyncIterator[str]:
    async with scratch_catalogue(postgresql_config) as url:
        yield url


@pytest.fixture
async def other_catalogue(postgresql_config: SystemConfig) -> AsyncIterator[str]:
    """A database without tables; its installation will differ from that of `catalogue`."""
    async with scratch_database(postgresql_config) as url:
        yield url


def settings(catalogue: str, url: str) -> MediatorSettings:
    return MediatorSettings(catalogue_url=SecretStr(catalogue), coordination_url=SecretStr(url))


async def bound_to(redis: Redis) -> str | None:
    return await InstallationBinding(redis).installation()


async def rebind(redis: Redis, installation: str) -> None:
    """Empty Redis and bind it to another installation, atomically."""
    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.flushall()
        pipeline.set(BOUND_TO, installation)
        await pipeline.execute()


async def is_logged(caplog: pytest.LogCaptureFixture, reason: str) -> bool:
    """Whether the periodic task has logged why Redis is not used."""
    return any(
        line.startswith("bind the coordination Redis: ") and reason in line
        for line in caplog.messages
    )


async def coordination_of(mediator: Service) -> Any:
    return (await mediator.mediator.control.readiness())["coordination"]


async def test_another_installation_refuses_to_start(
    catalogue: str, other_catalogue: str, server: Server, redis: Redis
) -> None:
    url, other = server.url, settings(other_catalogue, server.url)
    async with service([], catalogue, coordination_url=url):
        assert await bound_to(redis) == OWN
        for other_mediator in (
            writing_mediator(other, CacheSettings(sketch="off")),
            reading_mediator(other),
        ):
            with pytest.raises(BoundToAnother, match=f"{OWN}. Set PORTOLAN_COORDINATION_URL"):
                await other_mediator.__aenter__()
        async with service([], catalogue, coordination_url=url) as replica:
            assert await coordination_of(replica) == {"ok": True}
    assert await bound_to(redis) == OWN
    await redis.delete(BOUND_TO)  # as an operator can
    async with service([], other_catalogue, coordination_url=url):
        assert await bound_to(redis) != OWN


async def test_the_service_refuses_with_the_setting_to_change(
    other_catalogue: str, server: Server, redis: Redis
) -> None:
    await redis.set(BOUND_TO, OTHER)
    process = ServiceProcess.on([], other_catalogue, server.url)
    with pytest.raises(AssertionError, match="ended at its start"):
        await process.start()
    output = " ".join("".join(process.output).split())
    assert f"bound to another installation, {OTHER}. Set PORTOLAN_COORDINATION_URL" in output
    assert await redis.keys() == [BOUND_TO.encode()]


async def test_of_concurrent_bindings_one_wins(redis: Redis) -> None:
    names = [str(number) for number in range(20)]
    bindings = (InstallationBinding(redis).bind(name) for name in names)
    results = await asyncio.gather(*bindings, return_exceptions=True)
    [winner] = [name for name, result in zip(names, results, strict=True) if result is None]
    assert await bound_to(redis) == winner
    assert sum(isinstance(result, BoundToAnother) for result in results) == len(names) - 1


@pytest.mark.parametrize("relaying", ["here", "only"])
async def test_a_replica_stops_using_redis_once_it_is_bound_to_another_installation(
    catalogue: str,
    server: Server,
    redis: Redis,
    relaying: Relaying,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with service([], catalogue, coordination_url=server.url, relaying=relaying) as mediator:
        shared = mediator.mediator.coordination
        assert shared is not None

        with caplog.at_level(logging.WARNING):
            await rebind(redis, OTHER)
            # By the periodic task, before any request.
            await eventually(partial(is_logged, caplog, "bound to another"))
        readiness = await mediator.mediator.control.readiness()
        assert readiness["ready"]
        assert readiness["degraded"] == ["coordination"]
        assert "PORTOLAN_COORDINATION_URL" in readiness["coordination"]["detail"]
        await rebind(redis, OTHER)
        await mediator.mediator.share_metrics()
        for call in (shared.feed.tick(), shared.leases.acquire("relay", "a", 60.0)):
            with pytest.raises(Unavailable):
                await call
        assert await redis.keys() == [BOUND_TO.encode()]
        assert sum("bound to another" in line for line in caplog.messages) == 1


async def test_a_replica_uses_redis_again_once_the_other_binding_is_gone(
    catalogue: str, server: Server, redis: Redis
) -> None:
    async with service([], catalogue, coordination_url=server.url) as mediator:
        shared = mediator.mediator.coordination
        assert shared is not None

        async def is_refused() -> bool:
            return shared.is_refused

        async def is_used() -> bool:
            return not shared.is_refused

        await rebind(redis, OTHER)
        await eventually(is_refused)
        await redis.delete(BOUND_TO)
        await eventually(is_used)
        assert await bound_to(redis) == OWN
        assert await shared.leases.acquire("relay", "a", 60.0)
        assert await shared.feed.tick() > 0
        assert await coordination_of(mediator) == {"ok": True}


async def test_a_replica_that_cannot_see_others_counts_itself_only(
    catalogue: str, server: Server, redis: Redis
) -> None:
    async with (
        service([], catalogue, coordination_url=server.url) as mediator,
        service([], catalogue, coordination_url=server.url) as replica,
    ):
        await replica.mediator.share_metrics()
        await mediator.mediator.share_metrics()
        assert await advised_replicas(mediator) == 2
        await rebind(redis, OTHER)
        with pytest.raises(BoundToAnother):
            await mediator.mediator.renew_binding()
        await mediator.mediator.share_metrics()
        assert await advised_replicas(mediator) == 1


async def advised_replicas(mediator: Service) -> int:
    """Return the number of replicas that scaling advice is based on."""
    return int((await mediator.mediator.control.scaling())["service"]["replicas"])


async def test_a_backup_stores_no_position_of_another_installation(
    catalogue: str, server: Server, redis: Redis, postgresql_config: SystemConfig, tmp_path: Path
) -> None:
    async with (
        scratch_systems(postgresql_config) as configs,
        service(configs, catalogue, coordination_url=server.url) as mediator,
    ):
        database = await mediator.put_schema(
            {"things": {"fields": {"title": field_on("postgres")}}}
        )
        async with reading_mediator(settings(catalogue, server.url)) as reader:
            assert await reader.installation.position(database)
            await rebind(redis, OTHER)
            with pytest.raises(BoundToAnother):
                await Backup(reader.installation, ignore).write(tmp_path / "b")


async def test_an_emptied_redis_is_bound_again(
    catalogue: str, server: Server, redis: Redis
) -> None:
    async def is_bound() -> bool:
        return await bound_to(redis) == OWN

    async with service([], catalogue, coordination_url=server.url):
        await redis.flushall()
        await eventually(is_bound)


async def test_a_replica_that_starts_before_redis_does_not_use_one_bound_to_another(
    catalogue: str, server: Server, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await redis.set(BOUND_TO, OTHER)
    server.stop()
    async with service([], catalogue, coordination_url=server.url) as mediator:
        shared = mediator.mediator.coordination
        assert shared is not None

        async def is_refused() -> bool:
            return shared.is_refused

        assert not (await coordination_of(mediator))["ok"]
        with caplog.at_level(logging.WARNING):
            await eventually(partial(is_logged, caplog, "does not answer"))
            server.start()
            await eventually(is_refused)
            await eventually(partial(is_logged, caplog, "bound to another"))
    assert await bound_to(redis) == OTHER


async def findings(catalogue: str, url: str) -> dict[str, Finding]:
    return {finding.what: finding for finding in await examine_databases(settings(catalogue, url))}


async def test_the_doctor_reports_the_binding_and_binds_nothing(
    catalogue: str, other_catalogue: str, server: Server, redis: Redis
) -> None:
    for url in (catalogue, other_catalogue):
        assert (await findings(url, server.url))["coordination Redis"].found
    assert await bound_to(redis) is None
    await redis.set(BOUND_TO, OWN)
    assert (await findings(catalogue, server.url))["coordination Redis"].found
    finding = (await findings(other_catalogue, server.url))["coordination Redis"]
    assert (finding.found, finding.fatal, OWN in finding.detail) == (False, True, True)
    assert "PORTOLAN_COORDINATION_URL" in finding.remedy
    server.stop()
    silent = (await findings(catalogue, server.url))["coordination Redis"]
    assert (silent.found, silent.fatal) == (False, False)
