"""Messages that break their worker: each fails alone, whatever the exception."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis

from mediator.base.clock import SystemClock
from mediator.base.concurrency import end
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.http_request import HttpRequest
from mediator.flows.plan import Query, Write
from mediator.flows.queue import FlowKey, NewMessage, Ticket
from mediator.flows.worker import FlowWorker
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import unique
from tests.unit.flows.plans import ORDERS, flow


class BreakingInvoker:
    """Implements `Invoker`: one write raises an unexpected error, one spoils a query's rows."""

    def __init__(self) -> None:
        self.written_ids: list[str] = []
        self._rows: list[dict[str, Any]] = []

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        self._rows = [{"customer": document["filter"]["eq"][1], "amount": 1}]
        return self._rows

    async def write(self, write: Write, id_: Any, body: Any, operation: str) -> None:
        self.written_ids.append(id_)
        if id_ == "breaks":
            raise RecursionError
        if id_ == "spoils":
            self._rows[0]["amount"] = object()

    async def send(self, request: HttpRequest) -> Any:
        raise AssertionError


@pytest.fixture
async def queue(redis_config: SystemConfig) -> AsyncIterator[RedisMessageQueue]:
    async with Redis.from_url(redis_config.url) as redis:
        yield RedisMessageQueue(redis)


async def states(
    queue: RedisMessageQueue, invoker: BreakingInvoker, bodies: list[bytes], *, ordered: bool
) -> list[Ticket]:
    """Queue messages unchecked, and return their final states."""
    key = FlowKey(unique(), unique())
    await queue.put_flow(key, {}, 10.0, 1)
    messages = [NewMessage(unique(), "A", body) for body in bodies]
    await queue.enqueue(key, messages, None)

    async def known_tickets() -> list[Ticket]:
        tickets = [await queue.ticket(key, message.ticket) for message in messages]
        return [ticket for ticket in tickets if ticket is not None]

    async def have_ended() -> bool:
        return all(ticket.state != "queued" for ticket in await known_tickets())

    orders = flow(ORDERS, ordered=ordered)
    worker = FlowWorker(key, orders, queue, invoker, unique(), SystemClock())
    task = asyncio.create_task(worker.run())
    try:
        await eventually(have_ended)
        return await known_tickets()
    finally:
        await end([task])
        await queue.drop_flow(key)


@pytest.mark.parametrize("ordered", [True, False])
async def test_an_unexpected_exception_fails_one_message(
    queue: RedisMessageQueue, ordered: bool
) -> None:
    numbers, invoker = ["m1", "breaks", "m3"], BreakingInvoker()
    bodies = [orjson.dumps({"number": number, "name": "A"}) for number in numbers]
    tickets = await states(queue, invoker, bodies, ordered=ordered)
    assert [ticket.state for ticket in tickets] == ["done", "failed", "done"]
    assert invoker.written_ids == numbers
    assert tickets[1].document["message"] == {"number": "breaks", "name": "A"}


async def test_a_result_that_cannot_be_written_as_json_fails_its_message(
    queue: RedisMessageQueue,
) -> None:
    numbers = ["m1", "spoils"]
    bodies = [orjson.dumps({"number": number, "name": "A"}) for number in numbers]
    tickets = await states(queue, BreakingInvoker(), bodies, ordered=False)
    assert [ticket.state for ticket in tickets] == ["done", "failed"]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("levels", [65, 253])
async def test_a_message_that_is_queued_already_and_too_deep_becomes_a_dead_letter(
    queue: RedisMessageQueue, ordered: bool, levels: int
) -> None:
    """As from an older version."""
    plain, deep = b'{"number": "m", "name": "A"}', b"[" * levels + b"]" * levels
    bodies = [plain, b'{"number": "d", "name": "A", "deep": ' + deep + b"}", plain]
    invoker = BreakingInvoker()
    tickets = await states(queue, invoker, bodies, ordered=ordered)
    assert [ticket.state for ticket in tickets] == ["done", "failed", "done"]
    assert tickets[1].document["message"] == orjson.loads(bodies[1])
    assert tickets[1].document["errors"][0]["pointer"] == "/deep"
    assert invoker.written_ids == ["m", "m"]
