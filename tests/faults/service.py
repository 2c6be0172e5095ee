"""A service in a process of its own, to be killed, starved of its stores, or fed with rubbish."""

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
_DATA = re.compile(r"Data API\s+(https?://\S+?)/v1/")
_ADMIN = re.compile(r"Admin API\s+(https?://\S+?)/admin/v1/")
_BEST = {"write_throughput": 1e6, "read_latency": 1e-6, "read_throughput": 1e6}
_WORST = {"write_throughput": 1.0, "read_latency": 1000.0, "read_throughput": 1.0}
_FAVOURED = {
    "redis": "write_throughput",
    "postgres": "read_latency",
    "mongo": "read_throughput",
}


class Service:
    """`portolan serve` in a process; started, killed and started again.

    The ports of the first start are kept, so that clients go on where they were.

    Args:
        arguments: What follows `serve` on the command line.
        environment: Settings.
        configs: The systems that these name, if they are those of the run.

    Attributes:
        data: Address of the data API.
        admin: Address of the admin API.
        up: Set while the service runs, as far as its clients can know.
        output: What it printed.
        prepare: A function of a module, called in the process before.
    """

    def __init__(
        self,
        arguments: Iterable[str],
        environment: Mapping[str, str],
        configs: Sequence[SystemConfig] = (),
    ) -> None:
        self._arguments = tuple(arguments)
        self._configs = configs
        # No process takes over from a service of a test, unless the test sets it.
        undrained = {"PORTOLAN_DRAIN_S": "0"}
        self._environment = {**os.environ, **undrained, **environment, "COLUMNS": "200"}
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
        """Return a service with stores of its own."""
        return cls(("--embedded", "--data-dir", str(data_dir), *options), {})

    @classmethod
    def on(
        cls,
        configs: Sequence[SystemConfig],
        catalogue_url: str,
        coordination_url: str = "",
        **settings: str,
    ) -> Self:
        """Return a service on stores that others run; `settings` are those of its name."""
        members = ("name", "kind", "url", "durability", "deadline_s", "namespace")
        systems = [{name: getattr(config, name) for name in members} for config in configs]
        environment = {
            "PORTOLAN_CATALOGUE_URL": catalogue_url,
            "PORTOLAN_AUTHENTICATION": "off",
            "PORTOLAN_SYSTEMS": orjson.dumps(systems).decode(),
        }
        if coordination_url:
            environment["PORTOLAN_COORDINATION_URL"] = coordination_url
        more = {f"PORTOLAN_{name.upper()}": value for name, value in settings.items()}
        return cls((), environment | more, configs)

    async def start(self) -> None:
        """Start, and return once it has logged its addresses."""
        catalogue_url = self._environment.get("PORTOLAN_CATALOGUE_URL", "")
        new = self._configs if self._process is None else ()
        if new:
            await recall(new, catalogue_url)
        port, admin_port = self.ports
        self._process = await Forked.start(
            ("serve", *self._arguments, "--port", port, "--admin-port", admin_port),
            self._environment,
            prepare=self.prepare,
        )
        async with asyncio.timeout(READY_WITHIN_S):
            await self._announced()
        self._drain = asyncio.create_task(self._read_rest())
        if new:
            await remember(new, catalogue_url)
        self.up.set()

    async def kill(self) -> None:
        """Kill it as a crash would, and wait until it is gone."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End it as an operator would, stores included."""
        await self._end(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, and do not wait for what becomes of it."""
        assert self._process is not None
        self._process.send(number)

    async def ended(self) -> int:
        """Wait until it has ended by itself; return its exit status."""
        assert self._process is not None
        return await self._process.wait()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    async def favour(self) -> None:
        """State metrics so that `tests.process.service.field_on` decides where a field goes."""
        async with Connection(self.admin) as admin:
            for name, metric in _FAVOURED.items():
                await eventually(partial(_serves, admin, name))
                body = {"metrics": {**_WORST, metric: _BEST[metric]}}
                answer = await admin.request("PATCH", f"/admin/v1/systems/{name}", body)
                assert answer.status == 200, answer

    async def put_schema(self, database: str, classes: Mapping[str, Any]) -> dict[str, str]:
        """Set a schema; return the system of each node."""
        async with Connection(self.admin) as admin:
            for config in self._configs:
                await eventually(partial(_is_examined, admin, config.name))
            answer = await admin.request(
                "PUT", f"/admin/v1/schemas/{database}", {"classes": classes}
            )
        assert answer.status == 200, answer
        return {node: where["system"] for node, where in answer.json()["placements"].items()}

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

    async def _announced(self) -> None:
        assert self._process is not None
        while line := await self._process.output.readline():
            text = line.decode(errors="replace")
            self.output.append(text)
            if found := _DATA.search(text):
                self.data = found[1]
            if found := _ADMIN.search(text):
                self.admin = found[1]
                self.ports = (_port(self.data), _port(self.admin))
                return
        raise AssertionError("the service ended at its start:\n" + "".join(self.output[-50:]))

    async def _read_rest(self) -> None:
        assert self._process is not None
        while line := await self._process.output.readline():
            self.output.append(line.decode(errors="replace"))


async def _serves(admin: Connection, name: str) -> bool:
    """Whether a system has been examined: on a busy machine that may take a second attempt."""
    answer = await admin.request("GET", f"/admin/v1/systems/{name}")
    return bool(answer.status == 200 and answer.json()["state"] == "serving")


async def _is_examined(admin: Connection, name: str) -> bool:
    """Whether a system has been examined, whatever became of it since."""
    answer = await admin.request("GET", f"/admin/v1/systems/{name}")
    return answer.status != 200 or answer.json()["state"] != "not connected"


def _port(address: str) -> str:
    return str(urlsplit(address).port)
