"""Repeated requests to queue messages: under a key, or after the driver has lost a reply."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import time
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.base.clock import SystemClock
from mediator.base.errors import IdempotencyReused
from mediator.coordination.connecting import connect
from mediator.coordination.message_queue import KEY_RETENTION_S, RedisMessageQueue
from mediator.flows.queue import End, FlowKey
from mediator.flows.service import FlowService
from mediator.stores.port import RETENTION_S, SystemConfig
from tests.faults.holding import proxied
from tests.process.flows.batches import end_all, messages, take_batch
from tests.process.flows.keys import key_of
from tests.process.flows.shop import Shop, orders
from tests.process.service import unique


@pytest.mark.parametrize("retry", [None, ("key", "fingerprint")])
async def test_messages_whose_reply_was_lost_are_queued_once(
    key: FlowKey, redis_config: SystemConfig, retry: tuple[str, str] | None
) -> None:
    """The driver sends the call again, on another connection."""
    async with proxied(redis_config) as (proxy, reached), connect(reached.url) as redis:
        queue = RedisMessageQueue(redis)
        sent = messages("AB")
        await end_all(queue, key, messages("A"))  # so that the server knows the script
        proxy.loses = True
        first = await queue.enqueue(key, sent, retry)
        assert (first, proxy.loses) == (None if retry is None else sent[0].ticket, False)
        batches = [await take_batch(queue, key) for _ in sent]
        tickets = [message.ticket for batch in batches for message in batch.messages]
        assert tickets == [message.ticket for message in sent]


async def test_a_key_is_known_as_long_as_its_messages_can_be_repeated(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    sent = messages("A")
    assert await queue.enqueue(key, sent, ("key", "fingerprint")) is None
    for retry in (sent, messages("A")):
        assert await queue.enqueue(key, retry, ("key", "fingerprint")) == sent[0].ticket
    with pytest.raises(IdempotencyReused):
        await queue.enqueue(key, sent, ("key", "another"))
    async with Redis.from_url(redis_config.url) as redis:
        ttl_s = await redis.ttl(key_of(key, "key:key"))
    assert RETENTION_S == KEY_RETENTION_S >= ttl_s > KEY_RETENTION_S - 3600
    assert len((await take_batch(queue, key)).messages) == 1


async def test_a_message_that_is_queued_again_is_no_dead_letter(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    sent = messages("A")
    await end_all(queue, key, sent, End.FAILED)
    await queue.enqueue(key, sent, ("key", "fingerprint"))
    report = await queue.report(key)
    assert (report["queued"], report["dead_letters"]) == (1, 0)


async def test_pages_of_dead_letters_are_full(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    """Some are replayed while they are read."""
    sent = messages("A" * 10)
    await end_all(queue, key, sent, End.FAILED)
    async with Redis.from_url(redis_config.url) as redis:
        for message in sent[1:4]:
            await redis.hset(key_of(key, "waiting"), message.ticket, "")
    first = await queue.dead_letters(key, 0, 4)
    assert [message.ticket for message in first] == [sent[index].ticket for index in (0, 4, 5, 6)]
    second = await queue.dead_letters(key, first[-1].position, 4)
    assert [message.ticket for message in second] == [message.ticket for message in sent[7:]]


async def expire_keys(shop: Shop, flow: str) -> None:
    """Expire Idempotency-Keys, as after a day."""
    database = shop.service.mediator.data.model.databases[shop.database].id
    match = key_of(FlowKey(database, flow), "key:*")
    redis = shop.coordination.redis
    names = [name async for name in redis.scan_iter(match=match, count=10_000)]
    assert await redis.delete(*names) == len(names)


async def send_under(shop: Shop, flow: str, key: str, sent: list[dict[str, Any]]) -> list[str]:
    answer = await shop.send(flow, sent, **{"Idempotency-Key": key})
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (202, False)
    tickets: list[str] = answer.json()["tickets"]
    return tickets


class FixedClock(SystemClock):
    def __init__(self, now_s: float) -> None:
        self.now = lambda: now_s


@asynccontextmanager
async def at_time(shop: Shop, now_s: float) -> AsyncIterator[Shop]:
    """Call another replica, whose clock stands still and which executes nothing."""
    mediator = shop.service.mediator
    queue = shop.coordination.message_queue
    flows = FlowService(mediator.data, queue, unique(), FixedClock(now_s))
    options = DataOptions(cursor_key=b"key")
    api = DataApi(mediator.data, options, lambda _: None, DataServices(flows=flows))
    base = f"http://localhost/v1/{shop.database}/"
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        yield replace(shop, client=client)


async def test_a_key_that_has_expired_makes_new_messages(shop: Shop) -> None:
    """Failed messages stay dead letters, and another body is executed."""
    flow, prefix = await shop.create(), unique("k")
    failing, working = orders(["nobody"] * 3, prefix), orders(["A", "B", "C"], prefix)
    first = await send_under(shop, flow, prefix, failing)
    await shop.ended(flow, first)
    await expire_keys(shop, flow)
    async with at_time(shop, time() + RETENTION_S) as later:
        second = await send_under(later, flow, prefix, working)
        await expire_keys(shop, flow)
    states = await shop.ended(flow, second)
    assert [state["state"] for state in states] == ["done"] * 3
    for number in (1, 2, 3):
        assert (await shop.client.get(f"orders/{prefix}{number}")).status_code == 200
    report = await shop.report(flow)
    assert (report["queued"], report["dead_letters"]) == (0, 3)
    page = (await shop.client.get(f"message-flows/{flow}/dead-letters?limit=2")).json()
    assert [letter["ticket"] for letter in page["items"]] == first[:2]
    assert page["next"] is not None


async def test_the_same_body_under_a_key_that_has_expired_is_executed_again(shop: Shop) -> None:
    flow, prefix = await shop.create(), unique("k")
    sent = orders(["A"], prefix)
    first = await send_under(shop, flow, prefix, sent)
    await shop.ended(flow, first)
    assert (await shop.client.delete(f"orders/{prefix}1")).status_code == 204
    await expire_keys(shop, flow)
    async with at_time(shop, time() + RETENTION_S) as later:
        second = await send_under(later, flow, prefix, sent)
    await shop.ended(flow, second)
    assert (await shop.client.get(f"orders/{prefix}1")).status_code == 200


async def test_a_key_that_redis_has_lost_makes_the_same_messages(shop: Shop) -> None:
    """Their writes are not repeated; another body makes other messages."""
    flow, prefix = await shop.create(), unique("k")
    sent = orders(["A"], prefix)
    async with at_time(shop, time()) as then:
        first = await send_under(then, flow, prefix, sent)
        await shop.ended(flow, first)
        await expire_keys(shop, flow)
        assert await send_under(then, flow, prefix, sent) == first
        await expire_keys(shop, flow)
        assert await send_under(then, flow, prefix, orders(["B"], prefix)) != first
