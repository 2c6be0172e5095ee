"""Transactions: how many are aborted, by how much they read, with slow reads and with fast ones.

Clients in a closed loop read some objects of three systems one after the other, and add to the
first of them if all that they read still stands. The longer that takes, the more often somebody
else was faster. Reads that come from a cache take no time, which is what the second run is about.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter
from typing import Any, Final, TypeAlias

import httpx

from benchmarks.measured import Failed, Measured, Options, Result
from benchmarks.service import Service, portolan

__all__ = ["DATABASE", "Load", "Read", "Tally", "abort_rates", "prepare", "run"]

DATABASE: Final = "bank"
LENGTHS: Final = (1, 2, 4, 8, 16, 32)

_CLIENTS: Final = 16
_OBJECTS: Final = 1_000
_SECONDS: Final = (1.5, 10.0)
_ROUND_TRIP_S: Final = 0.01
_SKEW: Final = 0.7
"""Exponent of Zipf's law."""

_WORDS: Final = {
    "redis": "elasticity",
    "postgresql": "joins",
    "mongodb": "data_volume_scalability",
}

Read: TypeAlias = Callable[[str], Awaitable[str]]
"""Reads an object by its path below the database, and returns its ETag; through a cache, or not."""


@dataclass(slots=True)
class Tally:
    """What became of transactions of one length."""

    committed: int = 0
    aborted: int = 0
    seconds: float = 0.0

    @property
    def abort_rate(self) -> float:
        """The share of them that were aborted."""
        return self.aborted / max(self.committed + self.aborted, 1)

    @property
    def rate(self) -> float:
        """Those committed per second."""
        return self.committed / self.seconds


@dataclass(frozen=True, slots=True)
class Load:
    """What clients do.

    Attributes:
        service: The service.
        paths: The objects, the most popular first.
        seconds: For how long, with each length.
        seed: Where random numbers begin.
    """

    service: Service
    paths: Sequence[str]
    seconds: float
    seed: int


async def run(options: Options) -> Measured:
    """Measure abort rates and throughput with reads of 10 ms and of none."""
    results: list[Result] = []
    async with portolan() as service:
        paths = await prepare(service, options.seed)
        load = Load(service, paths, _SECONDS[not options.quick], options.seed)
        for told, pause_s in (("reads of 10 ms", _ROUND_TRIP_S), ("reads at once", 0.0)):
            tallies = await abort_rates(load, _reading(service, pause_s))
            for length, tally in tallies.items():
                name = f"{length} objects read, {told}"
                options.say(f"{name}: {tally.abort_rate:.1%} aborted, {tally.rate:.0f}/s")
                results.append(Result(f"{name}: aborted", "share", tally.abort_rate))
                results.append(Result(f"{name}: committed", "transactions/s", tally.rate))
        return Measured(results, await service.versions())


async def prepare(service: Service, seed: int) -> list[str]:
    """Set up objects on all systems; returns their paths, in an order that mixes systems."""
    systems = await service.declare({kind: (word,) for kind, word in _WORDS.items()})
    kinds = sorted({system["kind"] for system in systems})
    field = {"type": "integer", "default": 0}
    classes = {
        kind: {"annotations": [{"require": _WORDS[kind]}], "fields": {"n": field}} for kind in kinds
    }
    await service.set_schema(DATABASE, {"mode": "mixed", "classes": classes})
    places = [(kinds[i % len(kinds)], f"o{i}") for i in range(_OBJECTS)]
    for kind in kinds:
        objects: dict[str, dict[str, Any]] = {id_: {"n": 0} for k, id_ in places if k == kind}
        await service.create(DATABASE, {kind: objects})
    random.Random(seed).shuffle(places)
    return [f"{kind}/{id_}" for kind, id_ in places]


def _reading(service: Service, round_trip_s: float) -> Read:
    async def read(path: str) -> str:
        await asyncio.sleep(round_trip_s)
        answer = await service.data.get(f"{DATABASE}/{path}")
        tag: str = answer.headers["etag"]
        return tag

    return read


async def abort_rates(load: Load, read: Read) -> dict[int, Tally]:
    """Run transactions of each length; `read` says how objects are read."""
    tallies = {}
    for length in LENGTHS:
        tally = tallies[length] = Tally()
        ends = perf_counter() + load.seconds
        began = perf_counter()
        await asyncio.gather(
            *(_client(load, read, length, tally, number, ends) for number in range(_CLIENTS))
        )
        tally.seconds = perf_counter() - began
    return tallies


async def _client(
    load: Load, read: Read, length: int, tally: Tally, number: int, ends: float
) -> None:
    draw = random.Random(load.seed * _CLIENTS + number)
    weights = list(accumulate(rank**-_SKEW for rank in range(1, len(load.paths) + 1)))
    while perf_counter() < ends:
        chosen: dict[str, str] = {}
        while len(chosen) < length:
            [path] = draw.choices(load.paths, cum_weights=weights)
            if path not in chosen:
                chosen[path] = await read(path)
        if await _commit(load.service, chosen):
            tally.committed += 1
        else:
            tally.aborted += 1


async def _commit(service: Service, chosen: dict[str, str]) -> bool:
    places = [path.split("/") for path in chosen]
    reads = [
        {"class": class_name, "id": id_, "etag": tag}
        for (class_name, id_), tag in zip(places, chosen.values(), strict=True)
    ]
    class_name, id_ = places[0]
    add = {"op": "update", "class": class_name, "id": id_, "body": {"n": {"inc": 1}}}
    body = {"reads": reads, "operations": [add]}
    answer = await service.data.post(f"{DATABASE}/transactions", json=body)
    if answer.status_code not in (httpx.codes.OK, httpx.codes.CONFLICT):
        raise Failed(f"a transaction was answered with {answer.status_code}: {answer.text}")
    return answer.status_code == httpx.codes.OK
