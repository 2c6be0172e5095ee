"""Instances of the service in processes of their own, on the same servers."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import uvloop

from app.commands.demo.failed import Failed
from app.commands.demo.service import Service
from app.service.container import on_embedded
from app.service.draining import Signals
from app.service.interruption import interruptible
from app.service.serving import Addresses, serving
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings
from app.settings.telemetry import TelemetrySettings
from app.telemetry.log import start_logging
from mediator.embedded.fleet import EmbeddedFleet

__all__ = ["Instance", "instance_on_embedded", "instances"]

_STARTS_WITHIN_S: Final = 120.0
_SPAWN: Final = multiprocessing.get_context("spawn")


class Instance:
    """A service; ended by SIGTERM, and started again where it was.

    The environment holds further settings; without `caching` nothing may be cached.
    """

    def __init__(
        self,
        settings: MediatorSettings,
        environment: Mapping[str, str],
        drain_s: float,
        caching: CacheSettings | None = None,
    ) -> None:
        self._settings = settings
        self._caching = caching
        self._environment = environment
        self._http = HttpSettings(port=0, admin_port=0, drain_s=drain_s, log_level="warning")
        self._process: BaseProcess | None = None
        self._at = Addresses("", "")

    @property
    def data(self) -> str:
        """Address of its data API."""
        return self._at.data

    @property
    def admin(self) -> str:
        """Address of its admin API."""
        return self._at.admin

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        ours, theirs = _SPAWN.Pipe()
        arguments = (theirs, self._http, self._settings, self._caching, dict(self._environment))
        self._process = _SPAWN.Process(target=_serve, args=arguments)
        self._process.start()
        theirs.close()
        self._at = await asyncio.to_thread(_addresses, ours)
        ports = {"port": _port(self._at.data), "admin_port": _port(self._at.admin)}
        self._http = self._http.model_copy(update=ports)

    async def stop(self) -> None:
        """End it as a platform does."""
        if self._process is not None:
            self._process.terminate()
            await asyncio.to_thread(self._process.join)

    async def kill(self) -> None:
        """End it as a crash does."""
        assert self._process is not None
        self._process.kill()
        await asyncio.to_thread(self._process.join)

    async def restart(self) -> None:
        """End it, and start it again."""
        await self.stop()
        await self.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


@asynccontextmanager
async def instances(
    environments: Mapping[str, Mapping[str, str]], drain_s: float = 0.0
) -> AsyncIterator[dict[str, Instance]]:
    """Run embedded servers, and an instance for each environment, while the block runs.

    Raises:
        Interrupted: SIGINT or SIGTERM came meanwhile.
    """
    with ExitStack() as servers:
        scratch = servers.enter_context(tempfile.TemporaryDirectory(prefix="portolan-bench-"))
        fleet = await asyncio.to_thread(servers.enter_context, EmbeddedFleet(Path(scratch)))
        settings = on_embedded(MediatorSettings(), fleet.endpoints)
        async with AsyncExitStack() as started:
            made = {
                name: Instance(settings, environment, drain_s)
                for name, environment in environments.items()
            }
            for instance in made.values():  # one makes the catalogue's tables
                await started.enter_async_context(instance)
            signals = Signals()
            signals.listen()
            async with interruptible(signals.ended):
                yield made


@asynccontextmanager
async def instance_on_embedded(caching: CacheSettings) -> AsyncIterator[Service]:
    """Run an instance on embedded servers of its own; its sketch is on their Redis."""
    with tempfile.TemporaryDirectory(prefix="portolan-bench-") as scratch:
        settings = MediatorSettings(embedded=True, data_dir=Path(scratch))
        async with (
            Instance(settings, {}, 0.0, caching) as instance,
            Service.at(instance.data, instance.admin) as service,
        ):
            yield service


def _addresses(ours: Connection) -> Addresses:
    try:
        if ours.poll(_STARTS_WITHIN_S):
            at: Addresses = ours.recv()
            return at
    except EOFError:
        pass
    raise Failed("an instance did not start")


def _port(address: str) -> int:
    port = urlsplit(address).port
    assert port is not None
    return port


def _serve(
    theirs: Connection,
    http: HttpSettings,
    settings: MediatorSettings,
    caching: CacheSettings | None,
    environment: Mapping[str, str],
) -> None:
    async def run() -> None:
        async with serving(http, settings, caching) as running:
            theirs.send(running.addresses)
            await running.ended.wait()

    os.environ.update(environment)
    start_logging(TelemetrySettings().log_format)
    uvloop.run(run())
