"""A worker of a flow whose process is killed at a point.

The flow is the one of the orders, unless its document in the queue has a plan.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, Final
from uuid import uuid4

from redis.asyncio import Redis

from mediator.base.clock import SystemClock
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.execution import Invoker
from mediator.flows.http_request import HttpRequest
from mediator.flows.http_services import HttpServices
from mediator.flows.plan import Query, Write
from mediator.flows.queue import FlowKey
from mediator.flows.worker import FlowWorker
from tests.process.flows.http_service import AnyLocalHost
from tests.unit.flows.plans import ORDERS, flow

LOCAL: Final = HttpServices(AnyLocalHost())
"""Sends requests to this machine."""

_WRITE_ONCE: Final = """
if redis.call('SADD', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('RPUSH', KEYS[2], ARGV[2])
"""
"""A write under an operation id, as in every store."""


class RecordingInvoker:
    """Implements `Invoker`: writes are appended to a list in Redis, once for each operation id."""

    def __init__(self, redis: Redis, name: str) -> None:
        self._redis = redis
        self._write_once = redis.register_script(_WRITE_ONCE)
        self._keys = [f"{name}:operations", f"{name}:effects"]

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        return [{"customer": document["filter"]["eq"][1], "amount": 1}]

    async def write(self, write: Write, id_: Any, body: Any, operation: str) -> None:
        await self._write_once(keys=self._keys, args=[operation, id_])

    async def send(self, request: HttpRequest) -> Any:
        return await LOCAL.send(request)

    async def effects(self) -> list[str]:
        values: Any = await self._redis.lrange(self._keys[1], 0, -1)
        return [value.decode() for value in values]


class Killing:
    """Forwards calls to an object, and kills the process before or after a call of a method."""

    def __init__(self, target: Any, point: str, after: int) -> None:
        self._target = target
        self._when, _, self._method = point.partition(" ")
        self._remaining = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name != self._method:
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            if self._when == "before":
                self._pass()
            result = await method(*arguments, **options)
            if self._when == "after":
                self._pass()
            return result

        return call

    def _pass(self) -> None:
        if self._remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._remaining -= 1


def crash(url: str, key: FlowKey, point: str, after: int) -> None:
    """Work in this process until it is killed at a point, after passing it `after` times."""
    asyncio.run(_work(url, key, point, after))


async def _work(url: str, key: FlowKey, point: str, after: int) -> None:
    async with Redis.from_url(url) as redis:
        queue: Any = Killing(RedisMessageQueue(redis), point, after)
        invoker: Invoker = Killing(RecordingInvoker(redis, key.flow), point, after)
        token, clock = uuid4().hex, SystemClock()
        document = await queue.flow(key)
        parsed_flow = flow(document.get("plan", ORDERS), ordered=document["ordered"])
        await FlowWorker(key, parsed_flow, queue, invoker, token, clock).run()
