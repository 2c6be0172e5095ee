"""A message flow under load: its worker, its messages, and the observations of both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, time
from typing import Any, Final
from uuid import uuid4

import orjson
import uvloop

from app.commands.demo.failed import Failed
from mediator.base.clock import SystemClock
from mediator.base.waiting_time import Costs
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.execution import Invoker
from mediator.flows.parser import Flow
from mediator.flows.queue import Batch, End, Ended, FlowKey, NewMessage, NoBatch, Recorded
from mediator.flows.worker import FlowWorker

__all__ = ["FlowRun", "run_flow", "serve_credits"]

_HEAD: Final = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"
_DATABASE: Final = "bench"
"""Not a database of a service, whose workers would take these flows."""


@dataclass
class FlowRun:
    """A run of a flow.

    Attributes:
        wait_s: The waiting time to use; None: the computed one.
        latencies: Latencies of the ended messages (seconds).
        reports: The worker's report after each batch.
        duration_s: From the first message's arrival to the last one's end.
    """

    queue: RedisMessageQueue
    wait_s: float | None = None
    latencies: list[float] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    batches: int = 0
    duration_s: float = 0.0

    @property
    def rate(self) -> float:
        """Ended messages per second."""
        return len(self.latencies) / self.duration_s

    @property
    def costs(self) -> Costs:
        """The median of the measured costs."""
        constant = median(report["constant_s"] for report in self.reports)
        return Costs(constant, median(report["linear_s"] for report in self.reports))

    def late_share(self, bound_s: float) -> float:
        """Return the share of messages beyond a bound."""
        return sum(latency > bound_s for latency in self.latencies) / len(self.latencies)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)

    async def take(self, key: FlowKey, token: str, wait_s: float) -> Batch | NoBatch:
        wait_s = wait_s if self.wait_s is None else self.wait_s
        return await self.queue.take(key, token, wait_s)

    async def end_batch(
        self,
        key: FlowKey,
        batch: int,
        token: str,
        ended: Sequence[Ended],
        *args: Any,
        **kwargs: Any,
    ) -> Recorded | None:
        recorded = await self.queue.end_batch(key, batch, token, ended, *args, **kwargs)
        if failed := [message for message in ended if message.end is End.FAILED]:
            raise Failed(f"{len(failed)} messages failed: {failed[0].document.decode()}")
        now = time()
        self.latencies += [now - message.message.arrived_ms / 1000 for message in ended]
        self.batches += 1
        return recorded

    async def publish(self, key: FlowKey, report: dict[str, Any]) -> None:
        self.reports.append(report)
        await self.queue.publish(key, report)


async def run_flow(
    flow: Flow,
    invoker: Invoker,
    run: FlowRun,
    messages: Sequence[tuple[str, dict[str, Any]]],
    arrivals: Sequence[float] | None = None,
) -> FlowRun:
    """Execute messages with one worker, until all have ended.

    Args:
        messages: Each with the value of its partition.
        arrivals: Times of arrival, in seconds from the start; None: all before it.
    """
    key = FlowKey(_DATABASE, uuid4().hex)
    await run.queue.put_flow(key, flow.document, flow.latency_s, 1_000_000)
    new = [NewMessage(uuid4().hex, value, orjson.dumps(body)) for value, body in messages]
    worker: Any = FlowWorker(key, flow, run, invoker, uuid4().hex, SystemClock())  # type: ignore[arg-type]
    if arrivals is None:
        await run.queue.enqueue(key, new, None)
        arrival_task = None
    else:
        arrival_task = asyncio.create_task(_arrive(run.queue, key, new, arrivals))
    started = perf_counter()
    try:
        pause_s = 0.0
        while len(run.latencies) < len(new):
            await asyncio.sleep(pause_s)
            pause_s = await worker.step()
        run.duration_s = perf_counter() - started
    finally:
        if arrival_task is not None:
            arrival_task.cancel()
            with suppress(asyncio.CancelledError):
                await arrival_task
        await run.queue.drop_flow(key)
    return run


async def _arrive(
    queue: RedisMessageQueue, key: FlowKey, new: Sequence[NewMessage], arrivals: Sequence[float]
) -> None:
    started = perf_counter()
    for at, message in zip(arrivals, new, strict=True):
        await asyncio.sleep(max(0.0, started + at - perf_counter()))
        await queue.enqueue(key, [message], None)


def serve_credits(listener: socket.socket) -> None:
    """Answer GET /customers/<name> with the credit of that customer."""
    uvloop.run(_serve(listener))


async def _serve(listener: socket.socket) -> None:
    server = await asyncio.start_server(_answer, sock=listener)
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            name = head.split(b" ", 2)[1].rpartition(b"/")[2].decode()
            body = orjson.dumps([{"customer": name, "amount": 1}])
            writer.write(_HEAD.format(len(body)).encode() + body)
            await writer.drain()
    writer.close()
