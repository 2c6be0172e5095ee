"""YCSB's workloads A and B: closed loops that read and update counters, the popular ones often."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Protocol

from app.commands.demo.workload import draw
from benchmarks.harness.staleness import Staleness

__all__ = ["A", "B", "CounterClient", "Tally", "Workload", "drive"]

_DRAW_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload by YCSB's letter, with its share of reads; the rest are updates."""

    name: str
    reads: float


A = Workload("A", 0.5)
B = Workload("B", 0.95)


class CounterClient(Protocol):
    """A client of the counters; both methods return the current value."""

    async def read(self, id_: str) -> int: ...

    async def add(self, id_: str) -> int: ...


@dataclass(slots=True)
class Tally:
    """Latencies of the reads of a run (seconds), and its acknowledged updates."""

    latencies: array[float] = field(default_factory=lambda: array("d"))
    writes: int = 0
    seconds: float = 0.0

    @property
    def mean_s(self) -> float:
        return sum(self.latencies) / len(self.latencies)

    @property
    def rate(self) -> float:
        return (len(self.latencies) + self.writes) / self.seconds


async def drive(
    clients: Sequence[CounterClient],
    workload: Workload,
    ids: Sequence[str],
    reads: int,
    staleness: Staleness,
    seed: int,
    rate: float | None = None,
) -> Tally:
    """Run one loop for each client, until a number of reads is reached.

    Args:
        clients: The clients; several loops may use the same one.
        ids: The counters, the most popular one first.
        rate: Operations that all loops start together (1/s); a late loop catches up. None: the
            loops are closed, each starts an operation once the last one has ended.
    """
    tally, started = Tally(), perf_counter()
    every_s = 0.0 if rate is None else len(clients) / rate
    loops = [
        _Loop(client, workload, ids, tally, staleness, Random(f"{seed} {number}"), every_s)
        for number, client in enumerate(clients)
    ]
    await asyncio.gather(*(loop.run(reads) for loop in loops))
    tally.seconds = perf_counter() - started
    return tally


@dataclass(frozen=True, slots=True)
class _Loop:
    client: CounterClient
    workload: Workload
    ids: Sequence[str]
    tally: Tally
    staleness: Staleness
    chance: Random
    every_s: float

    async def run(self, reads: int) -> None:
        latencies = self.tally.latencies
        due = perf_counter() + self.chance.random() * self.every_s
        while len(latencies) < reads:
            for id_ in draw(self.ids, _DRAW_BATCH, self.chance.getrandbits(32)):
                # A client's own copies are returned without a pause: let other loops run.
                await asyncio.sleep(max(0.0, due - perf_counter()))
                if len(latencies) >= reads:
                    return
                await self._step(id_)
                due += self.every_s

    def _step(self, id_: str) -> Awaitable[None]:
        return self._read(id_) if self.chance.random() < self.workload.reads else self._add(id_)

    async def _read(self, id_: str) -> None:
        lower_bound, started = self.staleness.lower_bound(id_), perf_counter()
        count = await self.client.read(id_)
        self.tally.latencies.append(perf_counter() - started)
        self.staleness.check(id_, lower_bound, count)

    async def _add(self, id_: str) -> None:
        self.staleness.record(id_, await self.client.add(id_))
        self.tally.writes += 1
