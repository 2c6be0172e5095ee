"""Rolling restarts under steady load: no request may fail, and no acknowledged write be lost.

Two instances are stopped by SIGTERM and restarted in turn. Half of the load reaches them through
nginx, with keep-alive connections; half goes directly to the instances that report ready.
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
    restarts = 2 if options.quick else 20
    environments: dict[str, dict[str, str]] = {"one": {}, "other": {}}
    async with instances(environments, _DRAIN_S) as started:
        replicas = list(started.values())
        async with (
            Service.at(replicas[0].data, replicas[0].admin) as service,
            balancer([replica.data for replica in replicas]) as url,
        ):
            await service.set_schema(_DATABASE, _SCHEMA)
            versions = await service.versions()
            async with steady_load(replicas, url, _DATABASE) as load:
                for restarted in range(0, restarts, 2):
                    await roll(replicas, 2)
                    failed = load.failures.total()
                    options.log(
                        f"{restarted + 2} restarts: {load.answered:,} answered, {failed} failed"
                    )
            return Measured(
                _results(load, restarts, complete=await load.is_complete(url)), versions
            )


def _results(load: Load, restarts: int, *, complete: bool) -> list[Result]:
    failed = sum(load.failures.values())
    return [
        Result(f"failed requests over {restarts} rolling restarts", "requests", failed, bar=0,
               small_is_good=True),
        Result("requests answered meanwhile", "requests", load.answered),
        Result("objects whose acknowledged writes all took effect once", "share", float(complete),
               bar=1),
    ]  # fmt: skip
