"""A service that is told to end does, whatever the systems do that it takes leave of."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import pytest

from mediator.ending import ended_within
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied
from tests.faults.service import Service
from tests.faults.wire import Connection, Unanswered
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique

SYSTEMS = ("redis", "postgres", "mongo")
FIELDS = {name: field_on(name, group=name) for name in SYSTEMS}
NEVER_CLOSED = """
import asyncio
from app.cli import main
from mediator.service import Mediator

async def stop(self):
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

Mediator.stop = stop
main()
"""


@pytest.fixture
async def links() -> list[Holding]:
    """What the service reaches its servers by."""
    return []


@pytest.fixture
async def service(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    links: list[Holding],
) -> AsyncIterator[Service]:
    """A service all of whose connections can be held, those to catalogue and feed as well."""
    async with AsyncExitStack() as stack:

        async def through(config: SystemConfig) -> SystemConfig:
            holding, reached = await stack.enter_async_context(proxied(config))
            links.append(holding)
            return reached

        own = scratch_systems(redis_config, postgresql_config, mongodb_config)
        systems = [await through(config) for config in await stack.enter_async_context(own)]
        url = await stack.enter_async_context(scratch_catalogue(postgresql_config))
        catalogue = await through(replace(postgresql_config, url=url))
        coordination = await through(redis_config)
        started = Service.on(systems, catalogue.url, coordination.url)
        await stack.enter_async_context(started.running())
        yield started


@pytest.mark.timeout(300)
async def test_servers_that_are_gone_without_a_word_keep_nobody_from_ending(
    service: Service, links: Sequence[Holding]
) -> None:
    """Connections to them are there, with writes on their way, and new ones are taken."""
    await service.favour()
    database = unique("db")
    await service.put_schema(database, {"things": {"fields": FIELDS}})

    async def write(number: int) -> None:
        path = f"/v1/{database}/things/{number}"
        async with Connection(service.data) as data:
            with suppress(Unanswered):
                await data.request("PUT", path, dict.fromkeys(SYSTEMS, "x"))

    async def held() -> bool:
        return any(link.holds for link in links)

    await asyncio.gather(*map(write, range(10)))
    for link in links:
        link.hold()
    writing = [asyncio.create_task(write(number)) for number in range(10)]
    await eventually(held)
    service.send(signal.SIGTERM)
    assert await service.ended() == 0, service.output
    for link in links:
        await link.close()
    await asyncio.wait(writing)


async def test_a_process_ends_that_cannot_close_its_connections(
    postgresql_config: SystemConfig,
) -> None:
    async with scratch_catalogue(postgresql_config) as url:
        settings = {
            "PORTOLAN_CATALOGUE_URL": url,
            "PORTOLAN_AUTHENTICATION": "off",
            "PORTOLAN_DRAIN_S": "0",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", NEVER_CLOSED, "serve", "--port", "0", "--admin-port", "0"),
            env=settings,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            assert process.stdout is not None
            while b"Admin API" not in await process.stdout.readline():
                assert process.returncode is None
            process.terminate()
            said, _ = await process.communicate()
            assert process.returncode == 0
            assert b"its connections are cut off" in said
        finally:
            with suppress(ProcessLookupError):
                process.kill()


async def test_what_ends_too_late_is_left_behind_and_what_fails_is_told() -> None:
    gone = asyncio.Event()

    async def fail() -> None:
        raise OSError

    async def end() -> None:
        with suppress(asyncio.CancelledError):
            await gone.wait()
        await gone.wait()

    with pytest.raises(OSError, match=r"^$"):
        await ended_within(60, fail())
    assert not await ended_within(0.01, end())
    gone.set()
    assert await ended_within(60, end())
