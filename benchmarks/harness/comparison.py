"""Compares services: one load generator sends the same requests to each in turn."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final, Self

import httpx
import orjson
import uvloop

from app.commands.demo.http1 import render
from app.commands.demo.load import LoadLane, LoadPlan, LoadProcess, LoadResult
from app.commands.demo.rounds import interleaved
from app.commands.demo.service import Service, succeed
from benchmarks.harness.bare_handlers import KIND_OF, serve
from benchmarks.harness.delay import LOOPBACK, listening_process
from benchmarks.harness.report import Options, Result, per_second
from benchmarks.harness.shared_servers import CLASS, SharedService, hits, some_object
from mediator.embedded.port import Kind

__all__ = [
    "CONNECTIONS",
    "Harness",
    "Target",
    "against_bare_handlers",
    "bare_handlers",
    "median_rates",
]

OBJECTS: Final = 200
CONNECTIONS: Final = (1, 16)
_JSON: Final = {"Content-Type": "application/json"}
_BELOW_SQLALCHEMY: Final = "asyncpg"
"""The driver of PostgreSQL below SQLAlchemy, without a bar."""


@dataclass(frozen=True, slots=True)
class Target:
    """A service: its address, and the path of its objects."""

    host: str
    port: int
    path: str

    @classmethod
    def of(cls, service: Service, database: str) -> Self:
        """Return the articles of a database."""
        return cls(service.host, service.port, f"/v1/{database}/{CLASS}")

    async def drive(
        self, load: LoadProcess, method: str, connections: int, seconds: float
    ) -> LoadResult:
        plan = LoadPlan(self.host, self.port, [self.lane(method, connections)], seconds)
        (result,) = await load.drive(plan)
        return result

    async def fill(self) -> None:
        """Write every object once, so that there is something to read and to count."""
        async with httpx.AsyncClient(base_url=f"http://{self.host}:{self.port}") as client:
            for number in range(OBJECTS):
                await succeed(client.put(f"{self.path}/a{number}", json=some_object(number)))

    def lane(self, method: str, connections: int) -> LoadLane:
        """Return the requests of one method, for all objects in turn."""
        paths = [f"{self.path}/a{number}" for number in range(OBJECTS)]
        if method == "GET":
            return LoadLane([render("GET", path) for path in paths], connections)
        if method == "PATCH":
            return LoadLane(hits(paths), connections)
        puts = [
            render("PUT", path, orjson.dumps(some_object(number)), _JSON)
            for number, path in enumerate(paths)
        ]
        return LoadLane(puts, connections)


@dataclass(frozen=True, slots=True)
class Harness:
    """Loads targets in turn.

    Attributes:
        seconds: How long a target is loaded at a time; in quick mode a quarter of a second.
    """

    options: Options
    load: LoadProcess
    seconds: float = 1.0

    async def tallies(
        self, targets: Mapping[str, Target], method: str, connections: int, times: int = 1
    ) -> dict[str, list[LoadResult]]:
        """Load targets in turn, in `times` times as many rounds as other comparisons."""
        seconds = 0.25 if self.options.quick else self.seconds
        measures = {
            name: partial(target.drive, self.load, method, connections, seconds)
            for name, target in targets.items()
        }
        return await interleaved(times * (3 if self.options.quick else 7), measures)

    async def rates(
        self,
        name: str,
        targets: Mapping[str, Target],
        method: str,
        connections: int,
        times: int = 1,
    ) -> dict[str, float]:
        """Return the median rate of each target, and note them."""
        rates = median_rates(await self.tallies(targets, method, connections, times))
        self.options.note(f"{name}: {per_second(rates)}")
        return rates


def median_rates(tallies: Mapping[str, Sequence[LoadResult]]) -> dict[str, float]:
    return {name: median(tally.rate for tally in samples) for name, samples in tallies.items()}


def against_bare_handlers(
    name: str, rates: Mapping[str, float], ours: str, bar: float | None
) -> list[Result]:
    return [
        Result(
            f"{name} {driver}",
            "requests/s",
            rates[ours],
            rate,
            None if driver == _BELOW_SQLALCHEMY else bar,
        )
        for driver, rate in rates.items()
        if driver != ours
    ]


@contextlib.asynccontextmanager
async def bare_handlers(running: SharedService) -> AsyncIterator[dict[Kind, dict[str, Target]]]:
    """Run the bare handlers in a separate process; yield them by the kind of server."""
    urls = {kind: endpoint.url for kind, endpoint in running.servers.items()}
    with listening_process(_serve, urls) as port:
        yield {
            kind: {
                driver: Target(LOOPBACK, port, f"/{driver}")
                for driver, driver_kind in KIND_OF.items()
                if driver_kind == kind
            }
            for kind in urls
        }


def _serve(listener: socket.socket, urls: dict[Kind, str]) -> None:
    uvloop.run(serve(listener, urls))
