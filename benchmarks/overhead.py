"""The cost of the mediator: each operation through it against a bare handler with the driver.

Both are served by uvicorn with the same settings, each in one process, on the same servers
with the same durability, and loaded by the same generator, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import perf_counter
from typing import Final

from app.commands.demo.load import LoadProcess
from benchmarks.harness.comparison import (
    CONNECTIONS,
    Harness,
    Target,
    against_bare_handlers,
    bare_handlers,
)
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import CLASS, SharedService, database_on, shared_service
from mediator.embedded.port import Kind
from mediator.model.operations import Get, Update
from mediator.model.operators import Operator, OperatorCall
from mediator.routing.fragments import plan_read, plan_write
from mediator.routing.model import ClassRoute

__all__ = ["run"]

_BARS: Final = {"PUT": None, "GET": 0.8, "PATCH": 0.7}
_PORTOLAN: Final = "Portolan"
_DECISION_BAR_US: Final = 5.0


async def run(options: Options) -> Measured:
    async with LoadProcess() as load, shared_service() as running:
        for kind, counter in (await running.tie()).items():
            options.log(f"{kind}: the counter is of type {counter}")
        harness = Harness(options, load)
        results = list(_decisions(running))
        async with bare_handlers(running) as bare:
            for kind in running.servers:
                target = Target.of(running.service, database_on(kind))
                targets = {_PORTOLAN: target, **bare[kind]}
                results += await _compare(harness, kind, targets)
        return Measured(results, await running.service.versions())


async def _compare(harness: Harness, kind: Kind, targets: Mapping[str, Target]) -> list[Result]:
    results: list[Result] = []
    for target in targets.values():
        await target.fill()
    for method, bar in _BARS.items():
        for connections in CONNECTIONS:
            name = f"{method} on {kind}, {connections} connections"
            rates = await harness.rates(name, targets, method, connections)
            results += against_bare_handlers(f"{name}, against", rates, _PORTOLAN, bar)
    return results


def _decisions(running: SharedService) -> Iterator[Result]:
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
    """Return the shortest of many times: other work of the machine can only add to it."""
    repeats = 500
    return min(decide(repeats) for _ in range(60)) / repeats * 1e6
