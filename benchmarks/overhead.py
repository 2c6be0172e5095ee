"""What the mediator costs: each operation through it against a bare handler that calls the driver.

Both sides are served by uvicorn with the same settings, each in one process, on the same servers
with the same durability, and asked by the same load generator, in turn.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Final

import httpx
import orjson
import uvloop

from benchmarks.bare import KIND_OF, serve
from benchmarks.beside import CLASS, Beside, beside, database_on, some_object
from benchmarks.http1 import render
from benchmarks.load import Lane, LoadProcess, Plan, Tally
from benchmarks.measured import Measured, Options, Result
from benchmarks.rounds import interleaved
from benchmarks.service import succeed
from mediator.operations.model import Get, Update
from mediator.operations.operators import Operator, OperatorCall
from mediator.operations.plan import plan_read, plan_write
from mediator.placement.routing import ClassRoute
from mediator.stores.embedded.port import Kind

__all__ = ["run"]

_OBJECTS: Final = 200
_CONNECTIONS: Final = (1, 16)
_BARS: Final = {"PUT": None, "GET": 0.8, "PATCH": 0.7}
_HARDER: Final = "asyncpg"
_DECISION_BAR_US: Final = 5.0
_JSON: Final = {"Content-Type": "application/json"}
_UPDATE: Final = {"Content-Type": "application/vnd.portolan.update+json"}


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two services: where it listens, and where its objects are."""

    host: str
    port: int
    path: str

    async def fill(self) -> None:
        """Write every object once, so that there is something to read and to count."""
        async with httpx.AsyncClient(base_url=f"http://{self.host}:{self.port}") as client:
            for number in range(_OBJECTS):
                await succeed(client.put(f"{self.path}/a{number}", json=some_object(number)))

    def lane(self, method: str, connections: int) -> Lane:
        paths = [f"{self.path}/a{number}" for number in range(_OBJECTS)]
        if method == "GET":
            return Lane([render("GET", path) for path in paths], connections)
        if method == "PATCH":
            hit = orjson.dumps({"hits": {"inc": 1}})
            return Lane([render("PATCH", path, hit, _UPDATE) for path in paths], connections)
        bodies = [orjson.dumps(some_object(number)) for number in range(_OBJECTS)]
        requests = [
            render("PUT", path, body, _JSON) for path, body in zip(paths, bodies, strict=True)
        ]
        return Lane(requests, connections)


@dataclass(frozen=True, slots=True)
class _Bench:
    """What everything is measured with."""

    options: Options
    load: LoadProcess

    async def rate(self, side: _Side, method: str, connections: int) -> Tally:
        seconds = 0.25 if self.options.quick else 1.0
        plan = Plan(side.host, side.port, [side.lane(method, connections)], seconds)
        (tally,) = await self.load.drive(plan)
        return tally

    @property
    def rounds(self) -> int:
        return 3 if self.options.quick else 7


async def run(options: Options) -> Measured:
    """Measure GET, PUT and PATCH for every store, and the routing decision."""
    async with LoadProcess() as load, beside() as running:
        for kind, counter in (await running.tie()).items():
            options.say(f"{kind}: the counter is of type {counter}")
        bench = _Bench(options, load)
        results = list(_decisions(running))
        async with _bare(running) as port:
            for kind in running.servers:
                results += await _compare(bench, running, kind, port)
        return Measured(results, await running.service.versions())


async def _compare(bench: _Bench, running: Beside, kind: Kind, port: int) -> list[Result]:
    service = running.service
    sides = {way: _Side("127.0.0.1", port, f"/{way}") for way, of in KIND_OF.items() if of == kind}
    mediated = _Side(service.host, service.port, f"/v1/{database_on(kind)}/{CLASS}")
    results: list[Result] = []
    for side in (mediated, *sides.values()):
        await side.fill()
    for method in _BARS:
        for connections in _CONNECTIONS:
            measures = {
                way: partial(bench.rate, side, method, connections)
                for way, side in {"": mediated, **sides}.items()
            }
            tallies = await interleaved(bench.rounds, measures)
            rates = {way: median(tally.rate for tally in of) for way, of in tallies.items()}
            results += _results(bench, f"{method} on {kind}, {connections} connections", rates)
    return results


def _results(bench: _Bench, name: str, rates: Mapping[str, float]) -> Iterator[Result]:
    method = name.partition(" ")[0]
    for way, baseline in rates.items():
        if way:
            bar = None if way == _HARDER else _BARS[method]
            yield Result(f"{name}, against {way}", "requests/s", rates[""], baseline, bar)
    told = ", ".join(f"{way or 'Portolan'} {rate:,.0f}/s" for way, rate in rates.items())
    load_ = os.getloadavg()[0]
    bench.options.say(f"{name}: {told} (load average {load_:.1f})")


def _decisions(running: Beside) -> Iterator[Result]:
    database = next(map(database_on, running.servers))
    route = running.plane.model.databases[database].classes[CLASS]
    for name, decide in (("read", _read), ("update", _update)):
        figure = _microseconds(partial(decide, route, database))
        label = f"routing decision of one {name}"
        yield Result(label, "us", figure, bar=_DECISION_BAR_US, small_is_good=True)


def _read(route: ClassRoute, database: str, repeats: int) -> float:
    operation = Get(database, CLASS, "a1")
    started = perf_counter()
    for _ in range(repeats):
        plan_read(route, operation)
    return perf_counter() - started


def _update(route: ClassRoute, database: str, repeats: int) -> float:
    hit = (OperatorCall("hits", Operator.INC, 1),)
    operation = Update(database, CLASS, "a1", "operation", operators=hit)
    started = perf_counter()
    for _ in range(repeats):
        plan_write(route, operation, {})
    return perf_counter() - started


def _microseconds(decide: Callable[[int], float]) -> float:
    """Return the shortest of many times: what else the machine does can only add to it."""
    repeats = 500
    return min(decide(repeats) for _ in range(60)) / repeats * 1e6


@contextlib.asynccontextmanager
async def _bare(running: Beside) -> AsyncIterator[int]:
    """Run the bare handlers in a process of their own; yields their port."""
    urls = {kind: endpoint.url for kind, endpoint in running.servers.items()}
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        process = multiprocessing.get_context("spawn").Process(target=_serve, args=(listener, urls))
        process.start()
        try:
            yield listener.getsockname()[1]
        finally:
            process.terminate()
            process.join()


def _serve(listener: socket.socket, urls: dict[Kind, str]) -> Any:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    uvloop.run(serve(listener, urls))
