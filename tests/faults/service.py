"""A service in a separate process, to be killed, cut off from its stores or fed garbage."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.conditions import eventually
from tests.faults.operation.forked import Forked
from tests.process.access.examinations import recall, remember

__all__ = ["Service"]

READY_WITHIN_S = 120.0
_DATA_API = re.compile(r"Data API\s+(https?://\S+?)/v1/")
_ADMIN_API = re.compile(r"Admin API\s+(https?://\S+?)/admin/v1/")
_BEST = {"write_throughput": 1e6, "read_latency": 1e-6, "read_throughput": 1e6}
_WORST = {"write_throughput": 1.0, "read_latency": 1000.0, "read_throughput": 1.0}
_FAVOURED_METRICS = {
    "redis": "write_throughput",
    "postgres": "read_latency",
    "mongo": "read_throughput",
}


class Service:
    """A `portolan serve` process that can be started, killed and restarted.

    A restart reuses the ports, so clients can go on.

    Args:
        arguments: Command-line arguments of `serve`.
        environment: Settings.
        configs: The systems in the settings, if they are the test run's.

    Attributes:
        data: Address of the data API.
        admin: Address of the admin API.
        up: Set while the service runs, as its clients see it.
        output: The lines that it printed.
        prepare: A module-level function, called in the process first.
    """

    def __init__(
        self,
        arguments: Iterable[str],
        environment: Mapping[str, str],
        configs: Sequence[SystemConfig] = (),
    ) -> None:
        self._arguments = tuple(arguments)
        self._configs = configs
        # No process takes over from a test service unless the test sets this.
        no_drain = {"PORTOLAN_DRAIN_S": "0"}
        self._environment = {**os.environ, **no_drain, **environment, "COLUMNS": "200"}
        self.ports = ("0", "0")
        self._process: Forked | None = None
        self._drain: asyncio.Task[None] | None = None
        self.data = ""
        self.admin = ""
        self.up = asyncio.Event()
        self.output: list[str] = []
        self.prepare: Callable[[], None] | None = None

    @classmethod
    def embedded(cls, data_dir: Path, *options: str) -> Self:
        """Return a service with its own embedded stores."""
        return cls(("--embedded", "--data-dir", str(data_dir), *options), {})

    @classmethod
    def on(
        cls,
        configs: Sequence[SystemConfig],
        catalogue_url: str,
        coordination_url: str = "",
        **settings: str,
    ) -> Self:
        """Return a service on external stores; `settings` are those of `PORTOLAN_…`."""
        members = ("name", "kind", "url", "durability", "deadline_s", "namespace")
        systems = [{name: getattr(config, name) for name in members} for config in configs]
        environment = {
            "PORTOLAN_CATALOGUE_URL": catalogue_url,
            "PORTOLAN_AUTHENTICATION": "off",
            "PORTOLAN_SYSTEMS": orjson.dumps(systems).decode(),
        }
        if coordination_url:
            environment["PORTOLAN_COORDINATION_URL"] = coordination_url
        portolan_settings = {f"PORTOLAN_{name.upper()}": value for name, value in settings.items()}
        return cls((), environment | portolan_settings, configs)

    async def start(self) -> None:
        """Start the process; return once it has printed its addresses."""
        catalogue_url = self._environment.get("PORTOLAN_CATALOGUE_URL", "")
        unchecked_configs = self._configs if self._process is None else ()
        if unchecked_configs:
            await recall(unchecked_configs, catalogue_url)
        port, admin_port = self.ports
        self._process = await Forked.start(
            ("serve", *self._arguments, "--port", port, "--admin-port", admin_port),
            self._environment,
            prepare=self.prepare,
        )
        async with asyncio.timeout(READY_WITHIN_S):
            await self._read_addresses()
        self._drain = asyncio.create_task(self._read_rest())
        if unchecked_configs:
            await remember(unchecked_configs, catalogue_url)
        self.up.set()

    async def kill(self) -> None:
        """Kill the process as a crash would; return once it is gone."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Stop it as an operator would, embedded stores included."""
        await self._end(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal without waiting for the effect."""
        assert self._process is not None
        self._process.send(number)

    async def ended(self) -> int:
        """Wait until the process exits; return its exit status."""
        assert self._process is not None
        return await self._process.wait()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    async def favour(self) -> None:
        """State metrics with which `tests.process.service.field_on` decides the placement."""
        async with Connection(self.admin) as admin:
            for name, metric in _FAVOURED_METRICS.items():
                await eventually(partial(_serves, admin, name))
                body = {"metrics": {**_WORST, metric: _BEST[metric]}}
                response = await admin.request("PATCH", f"/admin/v1/systems/{name}", body)
                assert response.status == 200, response

    async def put_schema(self, database: str, classes: Mapping[str, Any]) -> dict[str, str]:
        """Set a schema; return the system of each placement node."""
        async with Connection(self.admin) as admin:
            for config in self._configs:
                await eventually(partial(_is_examined, admin, config.name))
            response = await admin.request(
                "PUT", f"/admin/v1/schemas/{database}", {"classes": classes}
            )
        assert response.status == 200, response
        return {
            node: placement["system"] for node, placement in response.json()["placements"].items()
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Start it, and stop it at the end."""
        try:
            await self.start()
            yield self
        finally:
            await self.stop()

    async def _end(self, number: signal.Signals) -> None:
        self.up.clear()
        if self._process is None:
            return
        self._process.send(number)
        await self._process.wait()
        if self._drain is not None:
            await self._drain

    async def _read_addresses(self) -> None:
        assert self._process is not None
        while line := await self._process.output.readline():
            text = line.decode(errors="replace")
            self.output.append(text)
            if match := _DATA_API.search(text):
                self.data = match[1]
            if match := _ADMIN_API.search(text):
                self.admin = match[1]
                self.ports = (_port(self.data), _port(self.admin))
                return
        raise AssertionError("the service ended at its start:\n" + "".join(self.output[-50:]))

    async def _read_rest(self) -> None:
        assert self._process is not None
        while line := await self._process.output.readline():
            self.output.append(line.decode(errors="replace"))


async def _serves(admin: Connection, name: str) -> bool:
    """Return whether a system serves: on a busy machine its check can take a second attempt."""
    response = await admin.request("GET", f"/admin/v1/systems/{name}")
    return bool(response.status == 200 and response.json()["state"] == "serving")


async def _is_examined(admin: Connection, name: str) -> bool:
    """Return whether a system has been checked, whatever its state since."""
    response = await admin.request("GET", f"/admin/v1/systems/{name}")
    return response.status != 200 or response.json()["state"] != "not connected"


def _port(address: str) -> str:
    return str(urlsplit(address).port)
