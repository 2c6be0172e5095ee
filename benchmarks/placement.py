"""The cost of placement decisions for readers: GETs while large schemas are placed.

Clients read objects, first alone and then while an operator has one schema after the other placed
in dry runs: 500 fields, each with its own goals, over ten systems. The figure is the 99th
percentile of the reads' latencies; both are measured in turn, several times. The ten systems are
namespaces of two servers, since decisions depend on their number only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from statistics import median
from typing import Any, Final, TypeAlias

import orjson

from app.commands.demo.load import LoadProcess, LoadResult
from app.commands.demo.rounds import interleaved
from app.commands.demo.service import RequestFailed, Service, serving_here
from app.service.container import on_embedded
from app.settings.main import MediatorSettings, SystemSettings
from benchmarks.harness.comparison import Target
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import ARTICLE_FIELDS, CLASS, embedded_fleet
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.port import Kind

__all__ = ["run"]

_Read: TypeAlias = Callable[[], Coroutine[Any, Any, tuple[LoadResult, int]]]

_BAR: Final = 1.5
_SYSTEMS: Final = 10
_FIELDS: Final = 500
_CONNECTIONS: Final = 4
_SHARE: Final = 0.99
_DATABASE: Final = "read"
_ALONE: Final = "alone"
_WITH_DECISIONS: Final = "while schemas are placed"
_KINDS: Final[tuple[Kind, ...]] = ("redis", "postgresql")


async def run(options: Options) -> Measured:
    rounds, seconds = (3, 2.0) if options.quick else (9, 5.0)
    schema = orjson.dumps(_schema(Random(options.seed)))
    async with (
        LoadProcess() as load,
        embedded_fleet() as (fleet, _),
        serving_here(_on_ten(fleet)) as (_, service),
    ):
        await service.set_schema(_DATABASE, {"classes": {CLASS: {"fields": ARTICLE_FIELDS}}})
        target = Target.of(service, _DATABASE)
        await target.fill()
        read = partial(_read, load, target, seconds)
        measures = {_ALONE: read, _WITH_DECISIONS: partial(_with_decisions, service, schema, read)}
        tallies = await interleaved(rounds, measures)
        versions = await service.versions()
    placed = sum(count for _, count in tallies[_WITH_DECISIONS])
    p99_ms = {name: _p99_ms([tally for tally, _ in samples]) for name, samples in tallies.items()}
    options.log(", ".join(f"GET {name}: p99 {ms:.2f} ms" for name, ms in p99_ms.items()))
    rate = placed / (rounds * seconds)
    both_ms = p99_ms[_WITH_DECISIONS], p99_ms[_ALONE]
    latency = Result(f"GET {_WITH_DECISIONS}, p99", "ms", *both_ms, _BAR, small_is_good=True)
    return Measured([latency, Result("placed meanwhile", "schemas/s", rate)], versions)


def _p99_ms(tallies: list[LoadResult]) -> float:
    return 1_000 * median(tally.percentile(_SHARE) for tally in tallies)


async def _read(load: LoadProcess, target: Target, seconds: float) -> tuple[LoadResult, int]:
    return await target.drive(load, "GET", _CONNECTIONS, seconds), 0


async def _with_decisions(service: Service, schema: bytes, read: _Read) -> tuple[LoadResult, int]:
    """Read for a while, and place schemas meanwhile; also return the number of schemas."""
    reading = asyncio.create_task(read())
    placed = 0
    while not reading.done():
        await _place(service, schema)
        placed += 1
    tally, _ = await reading
    return tally, placed


async def _place(service: Service, schema: bytes) -> None:
    path, headers = "schemas/placed?dry_run=true", {"content-type": "application/json"}
    response = await service.admin.put(path, content=schema, headers=headers)
    if response.is_error:
        raise RequestFailed(response)


def _schema(draw: Random) -> dict[str, Any]:
    def goals() -> list[dict[str, Any]]:
        return [
            {"metric": "read_latency", "goal": draw.uniform(0.0001, 0.01)},
            {"metric": "write_throughput", "goal": draw.uniform(1e3, 1e5)},
        ]

    fields = {f"f{n}": {"type": "string", "annotations": goals()} for n in range(_FIELDS)}
    return {"classes": {"wide": {"fields": fields}}}


def _on_ten(fleet: EmbeddedFleet) -> MediatorSettings:
    settings = on_embedded(MediatorSettings(), fleet.endpoints)
    extra_systems = [
        SystemSettings.model_validate(
            {
                "name": f"more{n}",
                "kind": (kind := _KINDS[n % len(_KINDS)]),
                "url": fleet.endpoints[kind].url,
                "namespace": f"more{n}",
            }
        )
        for n in range(_SYSTEMS - len(settings.systems))
    ]
    return settings.model_copy(update={"systems": [*settings.systems, *extra_systems]})
