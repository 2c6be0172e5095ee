"""A worker killed at any point: nothing is lost, happens twice, or leaves out of order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import orjson
import pytest
from redis.asyncio import Redis

from mediator.base.clock import SystemClock
from mediator.base.concurrency import end
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.queue import EndedMessage, FlowKey, NewMessage
from mediator.flows.worker import MAX_ATTEMPTS, FlowWorker
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.faults.operation.forked import exit_code_of
from tests.process.flows.crashing_worker import LOCAL, RecordingInvoker, crash
from tests.process.flows.http_service import http_service
from tests.process.flows.keys import end_leases
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
class KilledWorkers:
    redis: Redis
    url: str

    async def run(self, key: FlowKey, point: str, after: int) -> None:
        """Run a worker until it is killed, and end its lease for the next one."""
        exit_code = await exit_code_of(crash, self.url, key, point, after)
        assert exit_code == -signal.SIGKILL
        await end_leases(self.redis, key)


@pytest.fixture
async def killed(redis_config: SystemConfig) -> AsyncIterator[KilledWorkers]:
    async with Redis.from_url(redis_config.url) as redis:
        yield KilledWorkers(redis, redis_config.url)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(
    ("point", "ordered"),
    [(point, ordered) for ordered in (True, False) for point in POINTS]
    + [(point, True) for point in ORDERED]
    + [(point, False) for point in UNORDERED],
)
async def test_another_worker_goes_on(
    killed: KilledWorkers, point: str, ordered: bool, after: int
) -> None:
    queue, key = RedisMessageQueue(killed.redis), FlowKey(unique(), unique())
    await queue.put_flow(key, {"ordered": ordered}, 10.0, 1)
    bodies = [{"number": f"m{i}", "name": name} for i, name in enumerate(CUSTOMERS, 1)]
    messages = [NewMessage(unique(), body["name"], orjson.dumps(body)) for body in bodies]
    await queue.enqueue(key, messages, None)
    await killed.run(key, point, after)
    invoker = RecordingInvoker(killed.redis, key.flow)
    orders = flow(ORDERS, ordered=ordered)
    worker = FlowWorker(key, orders, queue, invoker, unique(), SystemClock())
    task = asyncio.create_task(worker.run())
    try:
        await eventually(lambda: _all_done(queue, key, messages))
        effects = await invoker.effects()
        numbers = [body["number"] for body in bodies]
        assert (effects if ordered else sorted(effects)) == numbers
    finally:
        await end([task])
        await queue.drop_flow(key)


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_request_of_a_killed_worker_comes_again_under_its_key(
    killed: KilledWorkers, ordered: bool
) -> None:
    queue, key = RedisMessageQueue(killed.redis), FlowKey(unique(), unique())
    async with http_service() as remote:
        http = {"method": "POST", "url": f"{remote.url}/fail/0/{{number}}"}
        plan = [ORDERS[0], {"op": "invoke", "http": http, "to": "answer"}]
        await queue.put_flow(key, {"ordered": ordered, "plan": plan}, 10.0, 1)
        bodies = [{"number": f"m{i}", "name": "A"} for i in range(1, 4)]
        messages = [NewMessage(unique(), "A", orjson.dumps(body)) for body in bodies]
        await queue.enqueue(key, messages, None)
        await killed.run(key, "after send", 1)
        worker = FlowWorker(
            key,
            flow(plan, ordered=ordered),
            queue,
            RecordingInvoker(killed.redis, key.flow),
            unique(),
            SystemClock(),
        )
        task = asyncio.create_task(worker.run())
        try:
            await eventually(lambda: _all_done(queue, key, messages))
            # In order, each message is recorded on its own; otherwise the batch is, at once.
            repeated = ["m2"] if ordered else ["m1", "m2"]
            targets = [request.target.rpartition("/")[2] for request in remote.received]
            assert sorted(targets) == sorted(["m1", "m2", "m3", *repeated])
            assert len({request.key for request in remote.received}) == 3
            for name in repeated:
                assert len({request.key for request in remote.to(f"/fail/0/{name}")}) == 1
            counts = (await queue.report(key))["counts"]
            # Nobody knows how far a started batch went.
            assert counts["repeated_requests"] == (1 if ordered else 3)
        finally:
            await end([task])
            await LOCAL.close()
            await queue.drop_flow(key)


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_worker_killed_between_two_chunks_of_a_batch_leaves_the_remaining_ones(
    killed: KilledWorkers, ordered: bool
) -> None:
    """Six results of 900 KB: the first five are some MiB already, and recorded by one call."""
    queue, key = RedisMessageQueue(killed.redis), FlowKey(unique(), unique())
    plan = [ORDERS[0], {"op": "assign", "to": "large", "value": "x" * 900_000}, *ORDERS[1:]]
    await queue.put_flow(key, {"ordered": ordered, "plan": plan}, 10.0, 1)
    bodies = [{"number": f"m{i}", "name": "A"} for i in range(1, 7)]
    messages = [NewMessage(unique(), "A", orjson.dumps(body)) for body in bodies]
    await queue.enqueue(key, messages, None)
    await killed.run(key, "after end_batch", 0)
    report = await queue.report(key)
    assert (report["held"], report["counts"]) == ((5, {}) if ordered else (0, {"done": 5}))
    invoker = RecordingInvoker(killed.redis, key.flow)
    large = flow(plan, ordered=ordered)
    worker = FlowWorker(key, large, queue, invoker, unique(), SystemClock())
    task = asyncio.create_task(worker.run())
    try:
        await eventually(lambda: _all_done(queue, key, messages))
        assert await invoker.effects() == [body["number"] for body in bodies]
        counts = (await queue.report(key))["counts"]
        assert (counts["done"], counts["batches"], counts["messages"]) == (6, 1, 1)
        assert [message.ticket for message in await _all_results(queue, key)] == [
            message.ticket for message in messages
        ]
    finally:
        await end([task])
        await queue.drop_flow(key)


async def test_a_message_that_no_worker_survives_becomes_a_dead_letter_and_the_order_goes_on(
    killed: KilledWorkers,
) -> None:
    queue, key = RedisMessageQueue(killed.redis), FlowKey(unique(), unique())
    await queue.put_flow(key, {"ordered": True}, 10.0, 1)
    bodies = [{"number": f"m{i}", "name": "A"} for i in range(1, 4)]
    messages = [NewMessage(unique(), "A", orjson.dumps(body)) for body in bodies]
    await queue.enqueue(key, messages, None)
    # The first worker passes the first message.
    for after in (1, *[0] * (MAX_ATTEMPTS - 1)):
        await killed.run(key, "before write", after)
    invoker = RecordingInvoker(killed.redis, key.flow)
    orders = flow(ORDERS, ordered=True)
    worker = FlowWorker(key, orders, queue, invoker, unique(), SystemClock())
    task = asyncio.create_task(worker.run())
    try:
        await eventually(lambda: _have_ended(queue, key, messages))
        assert await invoker.effects() == ["m1", "m3"]
        (letter,) = await queue.dead_letters(key, 0, 10)
        assert letter.document["message"] == bodies[1]
        assert "did not survive" in letter.document["detail"]
    finally:
        await end([task])
        await queue.drop_flow(key)


async def _all_results(queue: RedisMessageQueue, key: FlowKey) -> list[EndedMessage]:
    results: list[EndedMessage] = []
    after = None
    while (page := await queue.results(key, after, 10)).items:
        results += page.items
        after = page.position
    return results


async def _have_ended(
    queue: RedisMessageQueue, key: FlowKey, messages: Sequence[NewMessage]
) -> bool:
    states = [await queue.ticket(key, message.ticket) for message in messages]
    return all(state is not None and state.state != "queued" for state in states)


async def _all_done(queue: RedisMessageQueue, key: FlowKey, messages: list[NewMessage]) -> bool:
    states = [await queue.ticket(key, message.ticket) for message in messages]
    return all(state is not None and state.state == "done" for state in states)
