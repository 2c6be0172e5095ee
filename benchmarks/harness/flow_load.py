"""A message flow under load: its worker, the messages it gets, and what is observed of both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, time
from typing import Any, Final
from uuid import uuid4

import orjson

from mediator.base.clock import SystemClock
from mediator.base.waiting_time import Costs
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.execution import Invoker
from mediator.flows.parser import Flow
from mediator.flows.queue import Batch, Ended, FlowKey, NewMessage, NoBatch, Recorded
from mediator.flows.worker import FlowWorker

__all__ = ["FlowRun", "run_flow"]

_DATABASE: Final = "bench"
"""No database of a service: its own workers leave these flows alone."""


@dataclass
class FlowRun:
    """A run of a flow.

    Attributes:
        wait_s: The waiting time to be kept; None: the one that is computed.
        latencies: Of the messages that ended, in seconds.
        reports: What the worker published after each batch.
        took_s: From the first message's arrival to the last one's end.
    """

    queue: RedisMessageQueue
    wait_s: float | None = None
    latencies: list[float] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    batches: int = 0
    took_s: float = 0.0

    @property
    def rate(self) -> float:
        """Messages that ended in a second."""
        return len(self.latencies) / self.took_s

    @property
    def costs(self) -> Costs:
        """The median of the costs that were measured."""
        constant = median(report["constant_s"] for report in self.reports)
        return Costs(constant, median(report["linear_s"] for report in self.reports))

    def late(self, bound_s: float) -> float:
        """Return the share of messages beyond a bound."""
        return sum(each > bound_s for each in self.latencies) / len(self.latencies)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)

    async def take(self, key: FlowKey, token: str, wait_s: float) -> Batch | NoBatch:
        wait_s = wait_s if self.wait_s is None else self.wait_s
        return await self.queue.take(key, token, wait_s)

    async def end_batch(
        self, key: FlowKey, batch: int, token: str, ended: Sequence[Ended], *rest: Any, **how: Any
    ) -> Recorded | None:
        recorded = await self.queue.end_batch(key, batch, token, ended, *rest, **how)
        now = time()
        self.latencies += [now - each.message.arrived_ms / 1000 for each in ended]
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
    """Execute messages by one worker, until all have ended.

    Args:
        messages: Each with the value of its partition.
        arrivals: When each arrives, in seconds from the beginning; None: all before it.
    """
    key = FlowKey(_DATABASE, uuid4().hex)
    await run.queue.put_flow(key, flow.document, flow.latency_s, 1_000_000)
    new = [NewMessage(uuid4().hex, value, orjson.dumps(body)) for value, body in messages]
    worker: Any = FlowWorker(key, flow, run, invoker, uuid4().hex, SystemClock())  # type: ignore[arg-type]
    if arrivals is None:
        await run.queue.enqueue(key, new, None)
        arriving = None
    else:
        arriving = asyncio.create_task(_arrive(run.queue, key, new, arrivals))
    started = perf_counter()
    try:
        pause_s = 0.0
        while len(run.latencies) < len(new):
            await asyncio.sleep(pause_s)
            pause_s = await worker.step()
        run.took_s = perf_counter() - started
    finally:
        if arriving is not None:
            arriving.cancel()
            with suppress(asyncio.CancelledError):
                await arriving
        await run.queue.drop_flow(key)
    return run


async def _arrive(
    queue: RedisMessageQueue, key: FlowKey, new: Sequence[NewMessage], arrivals: Sequence[float]
) -> None:
    started = perf_counter()
    for at, message in zip(arrivals, new, strict=True):
        await asyncio.sleep(max(0.0, started + at - perf_counter()))
        await queue.enqueue(key, [message], None)
