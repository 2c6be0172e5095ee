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
from benchmarks.harness.report import Options
from benchmarks.harness.shared_servers import CLASS, SharedService, database_on, some_object
from mediator.embedded.port import Kind

__all__ = ["CONNECTIONS", "Harness", "Target", "bare_handlers", "median_rates", "mediated"]

OBJECTS: Final = 200
CONNECTIONS: Final = (1, 16)
_JSON: Final = {"Content-Type": "application/json"}
_UPDATE: Final = {"Content-Type": "application/vnd.portolan.update+json"}


@dataclass(frozen=True, slots=True)
class Target:
    """A service: where it listens, and where its objects are."""

    host: str
    port: int
    path: str

    @classmethod
    def of(cls, service: Service, database: str) -> Self:
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
            hit = orjson.dumps({"hits": {"inc": 1}})
            return LoadLane([render("PATCH", path, hit, _UPDATE) for path in paths], connections)
        bodies = [orjson.dumps(some_object(number)) for number in range(OBJECTS)]
        requests = [
            render("PUT", path, body, _JSON) for path, body in zip(paths, bodies, strict=True)
        ]
        return LoadLane(requests, connections)


@dataclass(frozen=True, slots=True)
class Harness:
    """Options and load generator of a comparison.

    Attributes:
        options: How the benchmark is run.
        load: Sends requests to the targets.
        seconds: How long a target is loaded at a time; in quick mode a quarter of a second.
    """

    options: Options
    load: LoadProcess
    seconds: float = 1.0

    async def rate(self, target: Target, method: str, connections: int) -> LoadResult:
        seconds = 0.25 if self.options.quick else self.seconds
        return await target.drive(self.load, method, connections, seconds)

    async def tallies(
        self, targets: Mapping[str, Target], method: str, connections: int, times: int = 1
    ) -> dict[str, list[LoadResult]]:
        """Load targets in turn, `times` as often as other comparisons do."""
        measures = {
            name: partial(self.rate, target, method, connections)
            for name, target in targets.items()
        }
        return await interleaved(times * (3 if self.options.quick else 7), measures)


def median_rates(tallies: Mapping[str, Sequence[LoadResult]]) -> dict[str, float]:
    return {name: median(tally.rate for tally in of) for name, of in tallies.items()}


def mediated(service: Service, kind: Kind) -> Target:
    """Return our service as a target, with its database on a kind of system."""
    return Target.of(service, database_on(kind))


@contextlib.asynccontextmanager
async def bare_handlers(running: SharedService) -> AsyncIterator[dict[Kind, dict[str, Target]]]:
    """Run the bare handlers in a process of their own; yields them by the kind of server."""
    urls = {kind: endpoint.url for kind, endpoint in running.servers.items()}
    with listening_process(_serve, urls) as port:
        yield {
            kind: {
                way: Target(LOOPBACK, port, f"/{way}") for way, of in KIND_OF.items() if of == kind
            }
            for kind in urls
        }


def _serve(listener: socket.socket, urls: dict[Kind, str]) -> None:
    uvloop.run(serve(listener, urls))
