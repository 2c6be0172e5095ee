"""Rolling restarts under steady load: no request may fail, and no acknowledged write be lost.

Two instances are ended by SIGTERM and started again in turn. Half of the load reaches them through
nginx, with connections that it keeps open; half goes straight to those that say they are ready.
"""

from __future__ import annotations

from typing import Final

from app.commands.demo.service import Service
from benchmarks.harness.balancer import balancer
from benchmarks.harness.instances import instances
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.rolling_restarts import Load, roll, steady_load

__all__ = ["run"]

_DRAIN_S: Final = 2.0
_DATABASE: Final = "rolled"
_SCHEMA: Final = {
    "default": {"system": "redis"},
    "classes": {"counts": {"fields": {"n": {"type": "integer", "default": 0}}}},
}


async def run(options: Options) -> Measured:
    times = 2 if options.quick else 20
    environments: dict[str, dict[str, str]] = {"one": {}, "other": {}}
    async with instances(environments, _DRAIN_S) as made:
        replicas = list(made.values())
        async with (
            Service.at(replicas[0].data, replicas[0].admin) as service,
            balancer([replica.data for replica in replicas]) as url,
        ):
            await service.set_schema(_DATABASE, _SCHEMA)
            versions = await service.versions()
            async with steady_load(replicas, url, _DATABASE) as load:
                for turn in range(0, times, 2):
                    await roll(replicas, 2)
                    failed = load.failures.total()
                    options.say(f"{turn + 2} restarts: {load.answered:,} answered, {failed} failed")
            return Measured(_results(load, times, complete=await load.is_complete(url)), versions)


def _results(load: Load, times: int, *, complete: bool) -> list[Result]:
    failed = sum(load.failures.values())
    return [
        Result(f"failed requests over {times} rolling restarts", "requests", failed, bar=0,
               small_is_good=True),
        Result("requests answered meanwhile", "requests", load.answered),
        Result("objects whose acknowledged writes all took effect once", "share", float(complete),
               bar=1),
    ]  # fmt: skip
