"""A worker killed at any point: nothing is lost, happens twice, or leaves out of order."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson
import pytest
from redis.asyncio import Redis

from mediator.base.clock import SystemClock
from mediator.base.concurrency import end
from mediator.coordination import message_queue
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.queue import FlowKey, NewMessage
from mediator.flows.worker import FlowWorker
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.flows.crashing_worker import LEASE_MS, RecordingInvoker
from tests.process.service import unique
from tests.unit.flows.plans import ORDERS, flow

CUSTOMERS = "ABACBC"
POINTS = ("after take", "after query", "before write", "after write")
ORDERED = (
    "before end_batch",
    "after end_batch",
    "after next_held",
    "before release",
    "after release",
)
UNORDERED = ("before end_batch", "after end_batch")


@dataclass
class Killed:
    redis: Redis
    url: str

    async def run(self, key: FlowKey, point: str, after: int) -> None:
        """Run a worker until it is killed."""
        module = "tests.process.flows.crashing_worker"
        arguments = ("-m", module, self.url, *key, point, str(after))
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
        assert await process.wait() == -signal.SIGKILL


@pytest.fixture
async def killed(
    redis_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Killed]:
    monkeypatch.setattr(message_queue, "_LEASE_MS", LEASE_MS)
    async with Redis.from_url(redis_config.url) as redis:
        yield Killed(redis, redis_config.url)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(
    ("point", "ordered"),
    [(point, ordered) for ordered in (True, False) for point in POINTS]
    + [(point, True) for point in ORDERED]
    + [(point, False) for point in UNORDERED],
)
async def test_another_worker_goes_on(
    killed: Killed, point: str, ordered: bool, after: int
) -> None:
    queue, key = RedisMessageQueue(killed.redis), FlowKey(unique(), unique())
    await queue.put_flow(key, {"ordered": ordered}, 10.0, 1)
    bodies = [{"number": f"m{i}", "name": name} for i, name in enumerate(CUSTOMERS, 1)]
    sent = [NewMessage(unique(), body["name"], orjson.dumps(body)) for body in bodies]
    await queue.enqueue(key, sent, None)
    await killed.run(key, point, after)
    invoker = RecordingInvoker(killed.redis, key.flow)
    orders = flow(ORDERS, ordered=ordered)
    worker = FlowWorker(key, orders, queue, invoker, unique(), SystemClock())
    task = asyncio.create_task(worker.run())
    try:
        await eventually(lambda: _all_done(queue, key, sent))
        effects = await invoker.effects()
        numbers = [body["number"] for body in bodies]
        assert (effects if ordered else sorted(effects)) == numbers
    finally:
        await end([task])
        await queue.drop_flow(key)


async def _all_done(queue: RedisMessageQueue, key: FlowKey, sent: list[NewMessage]) -> bool:
    states = [await queue.ticket(key, message.ticket) for message in sent]
    return all(state is not None and state.state == "done" for state in states)
