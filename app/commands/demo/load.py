"""The load generator: sends lanes of requests from a separate process."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from time import perf_counter
from types import TracebackType
from typing import Self, TypeVar

import uvloop

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import LaneRecord, LoadConnection, Window

__all__ = ["LoadLane", "LoadPlan", "LoadProcess", "LoadResult", "SeparateProcess"]

T = TypeVar("T")

_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class LoadLane:
    """Requests of one kind, sent in order, in a loop.

    Attributes:
        connections: How many requests are in flight at a time.
        operations: How many operations one request has.
        every_s: Seconds between two requests of a connection; None: one follows the other.
        error: Bytes in an answer that report an error, whatever its status; None: only the status
            does.
    """

    requests: Sequence[bytes]
    connections: int = 1
    operations: int = 1
    every_s: float | None = None
    error: bytes | None = None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The requests and their target; all lanes run at the same time.

    Attributes:
        seconds: Duration of the measurement.
        warm_s: Seconds of warm-up before it.
    """

    host: str
    port: int
    lanes: Sequence[LoadLane]
    seconds: float
    warm_s: float = 0.1


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of one lane.

    Attributes:
        latencies: Seconds of each measured request, sorted.
        operations: Operations of one request.
        acknowledged: Operations acknowledged, including those before and after the measurement.
    """

    seconds: float
    latencies: array[float]
    operations: int
    acknowledged: int

    @property
    def rate(self) -> float:
        return len(self.latencies) * self.operations / self.seconds

    def percentile(self, share: float) -> float:
        """Return the latency in seconds that `share` of the requests did not exceed."""
        if not self.latencies:
            return float("nan")
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


class SeparateProcess:
    """Calls functions in another process, which lives as long as the context."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        # Ctrl-C reaches every process of the terminal; this one's user ends it.
        ignore = (signal.SIGINT, signal.SIG_IGN)
        self._pool = ProcessPoolExecutor(1, spawn, signal.signal, ignore)

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, function, *arguments)

    async def __aenter__(self) -> Self:
        # Spawning and importing takes a second, which must not be measured.
        await self.call(int)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=True)


class LoadProcess(SeparateProcess):
    async def drive(self, plan: LoadPlan) -> list[LoadResult]:
        """Drive a plan; return a result for each lane, or raise `Failed` or `OSError`."""
        return await self.call(_drive, plan)


def _drive(plan: LoadPlan) -> list[LoadResult]:
    return uvloop.run(_send_all(plan))


async def _send_all(plan: LoadPlan) -> list[LoadResult]:
    start = perf_counter() + plan.warm_s
    window = Window(start, start + plan.seconds)
    lanes = [(lane, cycle(lane.requests), LaneRecord()) for lane in plan.lanes]
    loop = asyncio.get_running_loop()
    connections = await asyncio.gather(
        *(
            loop.create_connection(
                partial(LoadConnection, requests, window, record, lane.every_s, lane.error),
                plan.host,
                plan.port,
            )
            for lane, requests, record in lanes
            for _ in range(lane.connections)
        )
    )
    async with asyncio.timeout(plan.warm_s + plan.seconds + _GRACE_S):
        await asyncio.gather(*(connection.ended for _, connection in connections))
    return [_result(plan.seconds, lane, record) for lane, _, record in lanes]


def _result(seconds: float, lane: LoadLane, record: LaneRecord) -> LoadResult:
    if record.refused:
        counts = ", ".join(f"{count} times {status}" for status, count in record.refused.items())
        raise Failed(f"the service answered {counts}")
    latencies = array("d", sorted(record.latencies))
    return LoadResult(seconds, latencies, lane.operations, record.acknowledged * lane.operations)
