"""Single reads and increments by Zipf's law, with batching against without.

Two databases on the same servers have the same class and differ in `batching` alone. They are
loaded in turn over HTTP, each by connections that send one request after the other, so every wait
of a request lowers their rate. The goal of latency is that of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any, Final

from app.commands.demo.http1 import render
from app.commands.demo.load import LoadLane, LoadProcess, LoadResult
from app.commands.demo.rounds import interleaved
from app.commands.demo.workload import draw, drive
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import (
    ARTICLE_FIELDS,
    CLASS,
    REQUIREMENT,
    SharedService,
    declare_requirements,
    hits,
    shared_service,
    some_object,
)
from mediator.embedded.port import Kind

__all__ = ["run"]

_OBJECTS: Final = 500
_REQUESTS: Final = 5_000
_CONNECTIONS: Final = 64
_GOAL_S: Final = 0.1
_BATCHING: Final[Mapping[str, Any]] = {"on": {"max_wait_s": 0.01}, "off": None}
_BAR: Final = 1.5
_WITHOUT_BAR: Final = {("redis", "GET"), ("redis", "PATCH"), ("mongodb", "PATCH")}
"""Redis shares round trips without batching, and an update costs more than a round trip."""
_ROUNDS: Final = 7

_REQUIRED: Final = [
    {"metric": "read_throughput", "goal": 10_000},
    {"metric": "write_throughput", "goal": 10_000},
    {"metric": "read_latency", "goal": _GOAL_S},
    {"metric": "write_latency", "goal": _GOAL_S},
]


async def run(options: Options) -> Measured:
    async with LoadProcess() as load, shared_service() as running:
        await declare_requirements(running.service)
        results: list[Result] = []
        for kind in running.servers:
            for name, batching in _BATCHING.items():
                await _set_up(running, kind, _database(kind, name), batching)
            for method in ("GET", "PATCH"):
                results += await _compare(options, running, load, kind, method)
        return Measured(results, await running.service.versions())


async def _set_up(
    running: SharedService, kind: Kind, database: str, batching: Mapping[str, Any] | None
) -> None:
    class_ = {"fields": ARTICLE_FIELDS, "annotations": _REQUIRED, "batching": batching}
    required = [{"require": REQUIREMENT[kind]}]
    schema = {"annotations": required, "classes": {CLASS: class_}}
    await running.service.set_schema(database, schema)
    objects = {f"a{number}": some_object(number) for number in range(_OBJECTS)}
    await running.service.create(database, {CLASS: objects})


async def _compare(
    options: Options, running: SharedService, load: LoadProcess, kind: Kind, method: str
) -> list[Result]:
    seconds = 0.3 if options.quick else 1.0

    async def measure(lane: LoadLane) -> LoadResult:
        [result] = await drive(load, running.service, [lane], seconds)
        return result

    lanes = {name: _lane(_database(kind, name), method, options.seed) for name in _BATCHING}
    measures = {name: partial(measure, lane) for name, lane in lanes.items()}
    measured = await interleaved(3 if options.quick else _ROUNDS, measures)
    rates = {name: median(sample.rate for sample in samples) for name, samples in measured.items()}
    slowest_s = median(sample.percentile(0.99) for sample in measured["on"])
    operation = "reads" if method == "GET" else "increments"
    options.note(
        f"{operation} on {kind}: {rates['on']:,.0f}/s with batching, {rates['off']:,.0f}/s without;"
        f" 99 % within {slowest_s * 1e3:.1f} ms"
    )
    name = f"{operation} on {kind}, {_CONNECTIONS} connections"
    bar = None if (kind, method) in _WITHOUT_BAR else _BAR
    latency_name = f"{operation} on {kind}, 99th percentile of latency"
    return [
        Result(f"{name}, batching on against off", "requests/s", rates["on"], rates["off"], bar),
        Result(latency_name, "s", slowest_s, bar=_GOAL_S if bar else None, small_is_good=True),
    ]


def _database(kind: Kind, name: str) -> str:
    return f"{name}_{kind}"


def _lane(database: str, method: str, seed: int) -> LoadLane:
    ids = draw([f"a{number}" for number in range(_OBJECTS)], _REQUESTS, seed)
    paths = [f"/v1/{database}/{CLASS}/{id_}" for id_ in ids]
    if method == "GET":
        return LoadLane([render("GET", path) for path in paths], _CONNECTIONS)
    return LoadLane(hits(paths), _CONNECTIONS)
