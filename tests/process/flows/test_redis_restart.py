"""Redis is killed and restarted under a flow: nothing is lost, repeated, or out of order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis

from mediator.base.clock import SystemClock
from mediator.base.concurrency import end
from mediator.coordination.connecting import connect
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.embedded.redis import EmbeddedRedis
from mediator.flows.http_request import HttpRequest
from mediator.flows.plan import Query, Write
from mediator.flows.queue import FlowKey, NewMessage
from mediator.flows.worker import FlowWorker
from tests.faults.conditions import eventually
from tests.process.flows.keys import end_leases
from tests.process.service import unique
from tests.unit.flows.plans import ORDERS, flow

NUMBERS = [f"m{number}" for number in range(60)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as started:
        yield started


class Effects:
    """Implements `Invoker`: a write happens once for each operation id; one of them waits."""

    def __init__(self, waits_at: str) -> None:
        self.written: dict[str, str] = {}
        self.is_reached, self.can_continue = asyncio.Event(), asyncio.Event()
        self._waits_at = waits_at

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        return [{"customer": document["filter"]["eq"][1], "amount": 1}]

    async def write(self, write: Write, id_: Any, body: Any, operation: str) -> None:
        self.written.setdefault(operation, id_)
        if id_ == self._waits_at:
            self.is_reached.set()
            await self.can_continue.wait()

    async def send(self, request: HttpRequest) -> Any:
        raise AssertionError("the plan of orders sends nothing")


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_flow_goes_on_after_redis_was_killed(server: EmbeddedRedis, ordered: bool) -> None:
    endpoint = await asyncio.to_thread(server.start)
    key, effects = FlowKey(unique(), unique()), Effects(NUMBERS[7])
    async with connect(endpoint.url) as redis:
        queue = RedisMessageQueue(redis)
        await queue.put_flow(key, {}, 10.0, 1)
        messages = [
            NewMessage(unique(), f"{index % 5}", orjson.dumps({"number": number, "name": "A"}))
            for index, number in enumerate(NUMBERS)
        ]
        await queue.enqueue(key, messages, None)
        orders = flow(ORDERS, ordered=ordered)
        worker = FlowWorker(key, orders, queue, effects, unique(), SystemClock())
        task = asyncio.create_task(worker.run())
        try:
            await effects.is_reached.wait()
            await _restart(redis, server)
            await end_leases(redis, key)
            effects.can_continue.set()
            await eventually(lambda: _all_done(queue, key, messages))
        finally:
            await end([task])
    written_ids = list(effects.written.values())
    assert (written_ids if ordered else sorted(written_ids)) == (
        NUMBERS if ordered else sorted(NUMBERS)
    )


async def _restart(redis: Redis, server: EmbeddedRedis) -> None:
    info: Any = await redis.info("server")
    os.kill(info["process_id"], signal.SIGKILL)
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)


async def _all_done(queue: RedisMessageQueue, key: FlowKey, messages: list[NewMessage]) -> bool:
    states = [await queue.ticket(key, message.ticket) for message in messages]
    return all(state is not None and state.state == "done" for state in states)
