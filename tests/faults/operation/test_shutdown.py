"""A service exits on a signal, whatever its systems do meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial

import pytest

from app.service.interruption import NotClosed, closing
from mediator.base.concurrency import ended_within
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection, Unanswered
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied
from tests.faults.operation.forked import Forked
from tests.faults.operation.unclosable import fail_unclosed, never_close
from tests.faults.service import Service
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique

SYSTEMS = ("redis", "postgres", "mongo")
FIELDS = {name: field_on(name, group=name) for name in SYSTEMS}
SERVE = ("serve", "--port", "0", "--admin-port", "0")


@pytest.fixture
async def links() -> list[Holding]:
    """The proxies between the service and its servers."""
    return []


@pytest.fixture
async def service(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    links: list[Holding],
) -> AsyncIterator[Service]:
    """A service whose connections can all be held, to catalogue and feed as well."""
    async with AsyncExitStack() as stack:

        async def proxy(config: SystemConfig) -> SystemConfig:
            holding, proxied_config = await stack.enter_async_context(proxied(config))
            links.append(holding)
            return proxied_config

        scratch = scratch_systems(redis_config, postgresql_config, mongodb_config)
        systems = [await proxy(config) for config in await stack.enter_async_context(scratch)]
        url = await stack.enter_async_context(scratch_catalogue(postgresql_config))
        catalogue = await proxy(replace(postgresql_config, url=url))
        coordination = await proxy(redis_config)
        running_service = Service.on(systems, catalogue.url, coordination.url)
        await stack.enter_async_context(running_service.running())
        yield running_service


@pytest.mark.timeout(300)
async def test_a_service_ends_although_its_servers_do_not_respond(
    service: Service, links: Sequence[Holding]
) -> None:
    """Connections are open with writes in flight, and new ones are accepted."""
    await service.favour()
    database = unique("db")
    await service.put_schema(database, {"things": {"fields": FIELDS}})

    async def write(number: int) -> None:
        path = f"/v1/{database}/things/{number}"
        async with Connection(service.data) as data:
            with suppress(Unanswered):
                await data.request("PUT", path, dict.fromkeys(SYSTEMS, "x"))

    async def any_held() -> bool:
        return any(link.holds for link in links)

    await asyncio.gather(*map(write, range(10)))
    for link in links:
        link.hold()
    writes = [asyncio.create_task(write(number)) for number in range(10)]
    await eventually(any_held)
    service.send(signal.SIGTERM)
    assert await service.ended() == 0, service.output
    for link in links:
        await link.close()
    await asyncio.wait(writes)


async def _run(
    prepare: Callable[[], None], postgresql: SystemConfig, *arguments: str, until: str = ""
) -> tuple[int, str]:
    """Run a command on an empty catalogue; terminate it once it prints `until`."""
    async with scratch_catalogue(postgresql) as url:
        settings = {
            "PORTOLAN_CATALOGUE_URL": url,
            "PORTOLAN_AUTHENTICATION": "off",
            "PORTOLAN_DRAIN_S": "0",
            "PORTOLAN_SPARK": "local[1]",
        }
        process = await Forked.start(arguments, {**os.environ, **settings}, prepare=prepare)
        try:
            if until:
                while until not in (line := (await process.output.readline()).decode()):
                    assert line, await process.wait()
                process.send(signal.SIGTERM)
            return await process.ended()
        finally:
            process.send(signal.SIGKILL)


@pytest.mark.parametrize(
    ("command", "ready"), [(SERVE, "Admin API"), (("worker",), "waiting for runs")]
)
async def test_a_process_ends_although_it_cannot_close_its_connections(
    postgresql_config: SystemConfig, command: tuple[str, ...], ready: str
) -> None:
    status, output = await _run(never_close, postgresql_config, *command, until=ready)
    assert status == 0, output
    assert "its connections are cut off" in output


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (OSError("the disk is full"), "Portolan cannot run: the disk is full"),
        (LookupError("a mistake of ours"), "LookupError: a mistake of ours"),
    ],
)
async def test_the_fatal_error_is_logged_although_connections_cannot_be_closed(
    postgresql_config: SystemConfig, error: Exception, logged: str
) -> None:
    status, output = await _run(partial(fail_unclosed, error), postgresql_config, *SERVE)
    assert status == 1, output
    assert "its connections are cut off" in output
    assert logged in output


async def test_a_late_close_does_not_hide_an_error() -> None:
    released = asyncio.Event()

    async def close() -> None:
        await released.wait()

    async def fail() -> None:
        async with closing(close, 0.01):
            raise OSError

    with pytest.raises(NotClosed) as error_info:
        await fail()
    assert isinstance(error_info.value.__cause__, OSError)
    released.set()
    with pytest.raises(OSError, match=r"^$"):
        await fail()


async def test_a_late_task_is_abandoned_and_a_failure_is_raised() -> None:
    released = asyncio.Event()

    async def fail() -> None:
        raise OSError

    async def end() -> None:
        with suppress(asyncio.CancelledError):
            await released.wait()
        await released.wait()

    with pytest.raises(OSError, match=r"^$"):
        await ended_within(60, fail())
    assert not await ended_within(0.01, end())
    released.set()
    assert await ended_within(60, end())
