"""Objects split over two and three systems: batches, imports and single puts, against one system.

A split object is written atomically: intents are set in all its records, a log entry commits it,
and each system applies its fragment. Each figure is compared with those of the same systems for
whole objects, one at a time: batches and imports with the mean of their rates, a single put with
the sum of their times. Batches and imports keep all processors busy, so they are also compared with
that sum, without a bar: it is the cost of the fragments alone.

All of them are requests of the HTTP API, over one keep-alive connection. The bars are for these.
Both times of a put include the cost of a request, so the same puts are measured a second time below
HTTP, called in the service's own process. That figure has no bar, and a smaller ratio.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

import orjson

from app.commands.demo.http1 import render
from app.commands.demo.load import LoadLane, LoadProcess
from benchmarks.harness.report import Measured, Options, Result, medians
from benchmarks.harness.shared_servers import (
    BATCH,
    SharedService,
    batches,
    field_on,
    shared_service,
    state_metrics,
)
from mediator.embedded.port import Kind
from mediator.model.operations import Put
from mediator.schema.types import Values

__all__ = ["run"]

_SYSTEMS: Final[tuple[Kind, ...]] = ("postgresql", "redis", "mongodb")
_FIELDS: Final = {"title": "postgresql", "author": "redis", "section": "mongodb"}
"""The fields of an object, and their systems if it is split over all."""

_DATABASE: Final = "split"
_OBJECTS: Final = 1_000
_IMPORT_SIZE, _IMPORTS = 500, 20
"""Objects of an import, and imports of distinct objects."""

_WARM_UP: Final = 4
"""Rounds that are not measured: a JVM, as that of the embedded MongoDB, first compiles its hot
methods, and meanwhile takes a processor from the other systems.
"""

_BARS: Final = {"batch": 0.3, "import": 0.3, "put": 0.6, "put in process": None}
"""The measures, and the share of the baseline that each has to reach."""

_JSON: Final = {"Content-Type": "application/json", "Prefer": "return=minimal"}
_NDJSON: Final = {"Content-Type": "application/x-ndjson"}


async def run(options: Options) -> Measured:
    """Measure each class separately, in turn."""
    async with LoadProcess() as load, shared_service() as running:
        running.require(*_SYSTEMS)
        classes = await _prepare(running)
        results = []
        seconds = 0.5 if options.quick else 2.0
        for kind in _BARS:
            targets = {name: _Target(running, load, kind, name, seconds) for name in classes}
            await _warm_up(targets.values(), seconds * _WARM_UP)
            await _wait_until_idle(running)
            measures = {name: target.measure for name, target in targets.items()}
            rates = await medians(3 if options.quick else 9, measures)
            for name, systems in classes.items():
                if len(systems) > 1:
                    results += _results(options, kind, name, systems, rates)
        return Measured(results, await running.service.versions())


async def _warm_up(targets: Iterable[_Target], seconds: float) -> None:
    for target in targets:
        await replace(target, seconds=seconds).measure()


async def _wait_until_idle(running: SharedService) -> None:
    """Wait for earlier writes, some of which are not on disk yet: they must not be measured."""
    await running.service.caught_up()
    await asyncio.to_thread(os.sync)


def _results(
    options: Options, kind: str, name: str, systems: Sequence[str], rates: Mapping[str, float]
) -> list[Result]:
    rate, alone = rates[name], [rates[f"on_{system}"] for system in systems]
    sequential, mean_rate = (
        1 / sum(1 / system_rate for system_rate in alone),
        sum(alone) / len(alone),
    )
    title, unit = f"{kind} of objects over {name} systems, against", "objects/s"
    rates_text = ", ".join(
        f"{system} {system_rate:,.0f}" for system, system_rate in zip(systems, alone, strict=True)
    )
    options.note(f"{title} {rates_text}: {rate:,.0f}/s")
    if kind.startswith("put"):
        return [Result(f"{title} one put on each of them", unit, rate, sequential, _BARS[kind])]
    return [
        Result(f"{title} one of them", unit, rate, mean_rate, _BARS[kind]),
        Result(f"{title} each of them in turn", unit, rate, sequential),
    ]


async def _prepare(running: SharedService) -> dict[str, Sequence[str]]:
    """Set up a class on each system, and one over two and over three; return their systems."""
    await state_metrics(running.service)
    systems_of: dict[str, Sequence[str]] = {f"on_{kind}": (kind,) for kind in _SYSTEMS}
    systems_of |= {"two": ("postgresql", "redis"), "three": _SYSTEMS}
    classes = {name: _class(systems) for name, systems in systems_of.items()}
    await running.service.set_schema(_DATABASE, {"mode": "mixed", "classes": classes})
    return systems_of


def _class(systems: Sequence[str]) -> dict[str, Any]:
    fields = {}
    for name, preferred in _FIELDS.items():
        system = preferred if preferred in systems else systems[0]
        group = {} if system == systems[0] else {"group": system}
        fields[name] = {"type": "string", **field_on(system), **group}
    return {"cache": {"visibility": "none"}, "fields": fields}


@dataclass(frozen=True, slots=True)
class _Target:
    """Writes objects of one class in one way."""

    running: SharedService
    load: LoadProcess
    kind: str
    name: str
    seconds: float
    imports: Iterator[int] = field(default_factory=itertools.count)

    async def measure(self) -> float:
        if self.kind == "put in process":
            return await self._put_in_process()
        lane = getattr(self, f"_{self.kind}")()
        return (await self.running.drive(self.load, lane, self.seconds)).rate

    def _batch(self) -> LoadLane:
        puts = [
            {"op": "put", "class": self.name, "id": f"o{n}", "body": _object(n)}
            for n in range(_OBJECTS)
        ]
        return LoadLane(batches(_DATABASE, puts), 1, operations=BATCH)

    def _import(self) -> LoadLane:
        """Import new objects, as long as they last."""
        number = next(self.imports)
        requests = []
        for part in range(_IMPORTS):
            ids = (f"i{number}.{part}.{n}" for n in range(_IMPORT_SIZE))
            lines = [orjson.dumps({"id": id_, **_object(n)}) for n, id_ in enumerate(ids)]
            target = f"/v1/{_DATABASE}/{self.name}/import"
            requests.append(render("POST", target, b"\n".join(lines), _NDJSON))
        return LoadLane(requests, 1, operations=_IMPORT_SIZE)

    def _put(self) -> LoadLane:
        requests = [
            render("PUT", f"/v1/{_DATABASE}/{self.name}/o{n}", orjson.dumps(_object(n)), _JSON)
            for n in range(_OBJECTS)
        ]
        return LoadLane(requests)

    async def _put_in_process(self) -> float:
        plane, numbers = self.running.plane, itertools.count()
        started = perf_counter()
        while (elapsed_s := perf_counter() - started) < self.seconds:
            number = next(numbers)
            id_, values = f"o{number % _OBJECTS}", _object(number)
            await plane.write(Put(_DATABASE, self.name, id_, uuid4().hex, values=values))
        return next(numbers) / elapsed_s


def _object(number: int) -> Values:
    return {name: f"{name} of the harbour, part {number}" for name in _FIELDS}
