"""Mixed load for as long as required, with a fault every minute: nothing is lost, nothing leaks.

Two replicas share embedded servers that lose nothing in a crash. One replica is killed and
restarted, the other never, so that a leak of the service shows there. After the warm-up, its
memory and descriptors, the connections to stores, the keys of Redis and the rows of the catalogue
stay within 5 %. `--minutes` sets the duration (20 by default; quick: 1, with a fault every ten
seconds).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any, Final

from app.commands.demo.failed import Failed
from app.commands.demo.service import Service
from app.service.container import on_embedded
from app.settings.main import CacheSettings, MediatorSettings
from benchmarks.harness.faults import Faults, Stage
from benchmarks.harness.footprint import Footprint, Watcher
from benchmarks.harness.instances import Instance, started
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import REQUIREMENT, declare_requirements, embedded_fleet
from benchmarks.harness.soak_load import DATABASE, Load
from mediator.base.concurrency import end
from mediator.embedded.port import Kind

__all__ = ["run"]

_BAR: Final = 1.05
_MINUTES: Final = 20.0
_MIN_ROUNDS: Final = 6
_ROUND_S: Final = 60.0
_CLASSES: Final[dict[Kind, str]] = {"redis": "counts", "postgresql": "sums", "mongodb": "likes"}
_UNITS: Final = {"resident": "MiB"}


async def run(options: Options) -> Measured:
    minutes = options.minutes or (1.0 if options.quick else _MINUTES)
    round_s = min(_ROUND_S, minutes * 60 / _MIN_ROUNDS)
    rounds = round(minutes * 60 / round_s)
    async with _open_stage() as stage:
        data = [replica.data for replica in stage.replicas]
        async with Service.at(data[0], stage.steady.admin) as service:
            versions = await _set_up(service)
        kinds = [kind for kind in _CLASSES if kind in stage.fleet.endpoints]
        load = Load(data, [_CLASSES[kind] for kind in kinds], options.seed)
        try:
            await load.start()
            table = await _soak(stage, load, rounds, round_s, options)
            await load.end()
            violations = await load.find_violations()
        finally:
            await load.close()
    options.log(f"refused: {dict(load.refused.most_common())}")
    for violation in violations:
        options.log(violation)
    return Measured([*_growth(table), *_guarantees(load, violations)], versions)


@asynccontextmanager
async def _open_stage() -> AsyncIterator[Stage]:
    async with embedded_fleet("full") as (fleet, directory):
        settings = on_embedded(MediatorSettings(durability="full"), fleet.endpoints)
        caching = CacheSettings(sketch="redis", cache_max_ttl_s=10.0)
        steady, restarted = (Instance(settings, caching=caching) for _ in range(2))
        async with started((steady, restarted)):
            yield Stage(directory, fleet, steady, restarted)


async def _set_up(service: Service) -> dict[str, str]:
    """Declare a class on each system, one of them cached, and articles."""
    available = {system["kind"] for system in await declare_requirements(service)}
    classes: dict[str, Any] = {
        name: _counting_class(kind) for kind, name in _CLASSES.items() if kind in available
    }
    classes["articles"] = {"fields": {"title": {"type": "string"}}}
    await service.set_schema(DATABASE, {"mode": "mixed", "classes": classes})
    return await service.versions()


def _counting_class(kind: Kind) -> dict[str, Any]:
    # The stand-in for MongoDB has no exact integers.
    number = "float" if kind == "mongodb" else "integer"
    counter = {"type": number, "default": 0, "index": True}
    cache = {"visibility": "public", "max_ttl_s": 5} if kind == "redis" else {"visibility": "none"}
    return {
        "cache": cache,
        "annotations": [{"require": REQUIREMENT[kind]}],
        "fields": {"n": counter},
    }


async def _soak(
    stage: Stage, load: Load, rounds: int, round_s: float, options: Options
) -> list[Footprint]:
    """Break something at the start of every round; return the footprint in each."""
    faults, table = Faults(stage), list[Footprint]()
    urls = {kind: endpoint.url for kind, endpoint in stage.fleet.endpoints.items()}
    watcher = Watcher(stage.steady.pid, urls)
    watching = asyncio.create_task(watcher.watch())
    options.log("turn  fault                 answered  refused      MiB  open  conns   keys  rows")
    try:
        for number in range(1, rounds + 1):
            until = asyncio.get_running_loop().time() + round_s
            broken = await faults.next()
            # A component that is, or just was, down says nothing about the long-run footprint.
            await asyncio.sleep(_remaining_s(until) / 2)
            await load.surge()
            watcher.samples.clear()
            await asyncio.sleep(_remaining_s(until))
            table.append(Footprint.median_of(watcher.samples or [await watcher.sample()]))
            options.log(_row(number, broken, load, table[-1]))
    finally:
        await end([watching])
    return table


def _remaining_s(until: float) -> float:
    return max(0.0, until - asyncio.get_running_loop().time())


def _row(number: int, broken: str, load: Load, footprint: Footprint) -> str:
    return (
        f"{number:4}  {broken:20} {load.answered:9,} {load.refused.total():8,}"
        f" {footprint.resident:8.1f} {footprint.descriptors:5.0f} {footprint.connections:6.0f}"
        f" {footprint.keys:6.0f} {footprint.rows:5.0f}"
    )


def _growth(table: Sequence[Footprint]) -> list[Result]:
    """Compare the last rounds with the first ones after the warm-up, a quarter of all."""
    warm = table[len(table) // 4 :]
    count = max(1, len(warm) // 3)
    first, last = Footprint.median_of(warm[:count]), Footprint.median_of(warm[-count:])
    return [
        Result(f"{field.name}, at the end against after the warm-up",
               _UNITS.get(field.name, field.name), getattr(last, field.name),
               getattr(first, field.name), _BAR, small_is_good=True)
        for field in fields(Footprint)
    ]  # fmt: skip


def _guarantees(load: Load, violations: Sequence[str]) -> list[Result]:
    if not load.staleness.reads:
        raise Failed("no cached read was answered")
    return [
        Result("objects that are not as acknowledged, or not as the feed has them", "objects",
               len(violations), bar=0, small_is_good=True),
        Result("cached reads beyond the bound of 1 s", "reads", load.staleness.violations, bar=0,
               small_is_good=True),
        Result("resets of the feed", "times", load.feed_resets, bar=0,
               small_is_good=True),
        Result("requests answered meanwhile", "requests", load.answered),
        Result("requests refused while something was broken", "requests", load.refused.total()),
    ]  # fmt: skip
