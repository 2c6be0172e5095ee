"""Mixed load for as long as required, with a fault every minute: nothing is lost, nothing leaks.

Two replicas share embedded servers that lose nothing in a crash. One replica is killed and
restarted, the other never, so that a leak of the service shows there. After the warm-up, its
memory and descriptors, the connections to stores, the keys of Redis and the rows of the catalogue
stay within 5 %. `--minutes` says for how long (20 by default; quick: 1, with a fault every ten
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
_LEAST_TURNS: Final = 6
_TURN_S: Final = 60.0
_CLASSES: Final[dict[Kind, str]] = {"redis": "counts", "postgresql": "sums", "mongodb": "likes"}
_UNITS: Final = {"resident": "MiB"}


async def run(options: Options) -> Measured:
    minutes = options.minutes or (1.0 if options.quick else _MINUTES)
    turn_s = min(_TURN_S, minutes * 60 / _LEAST_TURNS)
    turns = round(minutes * 60 / turn_s)
    async with _staged() as stage:
        data = [replica.data for replica in stage.replicas]
        async with Service.at(data[0], stage.kept.admin) as service:
            versions = await _set_up(service)
        kinds = [kind for kind in _CLASSES if kind in stage.fleet.endpoints]
        load = Load(data, [_CLASSES[kind] for kind in kinds], options.seed)
        try:
            await load.begin()
            table = await _soak(stage, load, turns, turn_s, options)
            await load.end()
            wrong = await load.lost()
        finally:
            await load.close()
    options.say(f"refused: {dict(load.refused.most_common())}")
    for each in wrong:
        options.say(each)
    return Measured([*_grown(table), *_kept(load, wrong)], versions)


@asynccontextmanager
async def _staged() -> AsyncIterator[Stage]:
    async with embedded_fleet("full") as (fleet, directory):
        settings = on_embedded(MediatorSettings(durability="full"), fleet.endpoints)
        caching = CacheSettings(sketch="redis", cache_longest_s=10.0)
        kept, shaken = (Instance(settings, caching=caching) for _ in range(2))
        async with started((kept, shaken)):
            yield Stage(directory, fleet, kept, shaken)


async def _set_up(service: Service) -> dict[str, str]:
    """Declare a class on each system, one of them cached, and articles."""
    there = {system["kind"] for system in await declare_requirements(service)}
    classes: dict[str, Any] = {
        name: _counting(kind) for kind, name in _CLASSES.items() if kind in there
    }
    classes["articles"] = {"fields": {"title": {"type": "string"}}}
    await service.set_schema(DATABASE, {"mode": "mixed", "classes": classes})
    return await service.versions()


def _counting(kind: Kind) -> dict[str, Any]:
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
    stage: Stage, load: Load, turns: int, turn_s: float, options: Options
) -> list[Footprint]:
    """Break something at the beginning of every turn; return what was taken up in each."""
    faults, table = Faults(stage), list[Footprint]()
    urls = {kind: endpoint.url for kind, endpoint in stage.fleet.endpoints.items()}
    watcher = Watcher(stage.kept.pid, urls)
    watching = asyncio.create_task(watcher.watch())
    options.say("turn  fault                 answered  refused      MiB  open  conns   keys  rows")
    try:
        for turn in range(1, turns + 1):
            until = asyncio.get_running_loop().time() + turn_s
            broken = await faults.next()
            # What is down, or was a moment ago, says nothing of what is taken up in the long run.
            await asyncio.sleep(_left(until) / 2)
            await load.surge()
            watcher.taken.clear()
            await asyncio.sleep(_left(until))
            table.append(Footprint.middle(watcher.taken or [await watcher.look()]))
            options.say(_row(turn, broken, load, table[-1]))
    finally:
        await end([watching])
    return table


def _left(until: float) -> float:
    return max(0.0, until - asyncio.get_running_loop().time())


def _row(turn: int, broken: str, load: Load, seen: Footprint) -> str:
    return (
        f"{turn:4}  {broken:20} {load.answered:9,} {load.refused.total():8,}"
        f" {seen.resident:8.1f} {seen.descriptors:5.0f} {seen.connections:6.0f}"
        f" {seen.keys:6.0f} {seen.rows:5.0f}"
    )


def _grown(table: Sequence[Footprint]) -> list[Result]:
    """Hold the last turns against the first ones after the warm-up, which is a quarter of all."""
    warm = table[len(table) // 4 :]
    some = max(1, len(warm) // 3)
    first, last = Footprint.middle(warm[:some]), Footprint.middle(warm[-some:])
    return [
        Result(f"{each.name}, at the end against after the warm-up",
               _UNITS.get(each.name, each.name), getattr(last, each.name),
               getattr(first, each.name), _BAR, small_is_good=True)
        for each in fields(Footprint)
    ]  # fmt: skip


def _kept(load: Load, wrong: Sequence[str]) -> list[Result]:
    if not load.judge.reads:
        raise Failed("no cached read was answered")
    return [
        Result("objects that are not as acknowledged, or not as the feed has them", "objects",
               len(wrong), bar=0, small_is_good=True),
        Result("cached reads beyond the bound of 1 s", "reads", load.judge.violations, bar=0,
               small_is_good=True),
        Result("resets of the feed", "times", load.feed_resets, bar=0,
               small_is_good=True),
        Result("requests answered meanwhile", "requests", load.answered),
        Result("requests refused while something was broken", "requests", load.refused.total()),
    ]  # fmt: skip
