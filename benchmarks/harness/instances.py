"""Instances of the service in separate processes, on the same servers."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
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
from benchmarks.harness.shared_servers import embedded_fleet

__all__ = ["Instance", "instance_on_embedded", "instances", "port_of", "started"]

_STARTS_WITHIN_S: Final = 120.0
_SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass
class Instance:
    """An instance; stopped by SIGTERM, and restarted at the same addresses.

    Without `caching` nothing may be cached; `environment` has further settings.
    """

    settings: MediatorSettings
    environment: Mapping[str, str] = field(default_factory=dict)
    drain_s: float = 0.0
    caching: CacheSettings | None = None
    _process: BaseProcess | None = field(default=None, init=False)
    _at: Addresses = field(default=Addresses("", ""), init=False)

    def __post_init__(self) -> None:
        self._http = HttpSettings(port=0, admin_port=0, drain_s=self.drain_s, log_level="warning")

    @property
    def data(self) -> str:
        return self._at.data

    @property
    def admin(self) -> str:
        return self._at.admin

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    async def start(self) -> None:
        ours, theirs = _SPAWN.Pipe()
        arguments = (theirs, self._http, self.settings, self.caching, dict(self.environment))
        self._process = _SPAWN.Process(target=_serve, args=arguments)
        self._process.start()
        theirs.close()
        self._at = await asyncio.to_thread(_addresses, ours)
        ports = {"port": port_of(self._at.data), "admin_port": port_of(self._at.admin)}
        self._http = self._http.model_copy(update=ports)

    async def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            await asyncio.to_thread(self._process.join)

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await asyncio.to_thread(self._process.join)

    async def restart(self) -> None:
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
    async with embedded_fleet() as (fleet, _):
        settings = on_embedded(MediatorSettings(), fleet.endpoints)
        instances = {
            name: Instance(settings, environment, drain_s)
            for name, environment in environments.items()
        }
        async with started(instances.values()):
            yield instances


@asynccontextmanager
async def started(instances: Iterable[Instance]) -> AsyncIterator[None]:
    """Start instances one after the other, since the first creates the catalogue's tables.

    Raises:
        Interrupted: SIGINT or SIGTERM came meanwhile.
    """
    async with AsyncExitStack() as stack:
        for instance in instances:
            await stack.enter_async_context(instance)
        signals = Signals()
        signals.listen()
        async with interruptible(signals.ended):
            yield


@asynccontextmanager
async def instance_on_embedded(caching: CacheSettings) -> AsyncIterator[Service]:
    """Run an instance on its own embedded servers; its sketch is on their Redis."""
    with tempfile.TemporaryDirectory(prefix="portolan-bench-") as scratch:
        settings = MediatorSettings(embedded=True, data_dir=Path(scratch))
        async with (
            Instance(settings, caching=caching) as instance,
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


def port_of(address: str) -> int:
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
