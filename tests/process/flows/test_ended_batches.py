"""Batches in Redis that end by several calls, and messages that are sent in order."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest
from redis.asyncio import Redis

from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.queue import Batch, End, Ended, FlowKey, NewMessage, NoBatch
from mediator.stores.port import SystemConfig
from tests.process.flows.keys import end_leases
from tests.process.service import unique

TOKEN, OTHER = "worker", "other"


@pytest.fixture
async def redis(redis_config: SystemConfig) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_config.url) as client:
        yield client


@pytest.fixture
def queue(redis: Redis) -> RedisMessageQueue:
    return RedisMessageQueue(redis)


@pytest.fixture
async def key(queue: RedisMessageQueue) -> AsyncIterator[FlowKey]:
    flow_key = FlowKey(unique(), unique())
    assert await queue.put_flow(flow_key, {}, 10.0, 1)
    yield flow_key
    await queue.drop_flow(flow_key)


def messages(number: int) -> list[NewMessage]:
    return [NewMessage(unique("m"), "A", b"{}") for _ in range(number)]


async def take_batch(queue: RedisMessageQueue, key: FlowKey, token: str = TOKEN) -> Batch:
    batch = await queue.take(key, token, 0)
    assert isinstance(batch, Batch)
    return batch


def end_rows(batch: Batch) -> list[Ended]:
    return [Ended(message, End.DONE, b"{}") for message in batch.messages]


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_batch_ends_in_chunks_and_ended_messages_are_not_given_out_again(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis, ordered: bool
) -> None:
    await queue.enqueue(key, messages(5), None)
    first = await take_batch(queue, key)
    counts = {"batches": 1}
    for chunk in (slice(0, 2), slice(2, 3)):
        # The second call is a retry after a lost reply.
        for _ in range(2):
            assert await queue.end_batch(
                key, first.number, TOKEN, end_rows(first)[chunk], counts, ordered=ordered
            )
    await end_leases(redis, key)
    remaining = await take_batch(queue, key, OTHER)
    assert (remaining.number, remaining.attempt) == (first.number, 2)
    assert remaining.messages == first.messages[3:]
    assert not await queue.end_batch(key, first.number, TOKEN, end_rows(first), {}, ordered=ordered)
    # Too many rows, as by a worker that has not seen the calls of the other one.
    assert await queue.end_batch(
        key, remaining.number, OTHER, end_rows(first), counts, ordered=ordered
    )
    report = await queue.report(key)
    assert report["counts"]["batches"] == 1
    assert (report["held"], report["counts"].get("done", 0)) == ((5, 0) if ordered else (0, 5))
    assert (await queue.results(key, None, 10)).position.number == (0 if ordered else 5)
    assert await queue.take(key, TOKEN, 0) == NoBatch(None)


async def test_large_results_are_given_out_some_at_a_time(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    await queue.enqueue(key, messages(5), None)
    batch = await take_batch(queue, key)
    large = orjson.dumps("x" * 600_000)
    rows = [row._replace(document=large) for row in end_rows(batch)]
    assert await queue.end_batch(key, batch.number, TOKEN, rows, {}, ordered=True)
    positions = []
    while page := await queue.next_held(key, TOKEN, 10):
        positions.append([row.message.position for row in page])
        for row in page:
            assert row.document == large
            assert await queue.release(key, TOKEN, row, {})
    assert positions == [[1, 2], [3, 4], [5]]


async def test_workers_that_start_to_send_a_message_are_counted(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis
) -> None:
    await queue.enqueue(key, messages(3), None)
    batch = await take_batch(queue, key)
    await queue.end_batch(key, batch.number, TOKEN, end_rows(batch), {}, ordered=True)
    first, *_ = await queue.next_held(key, TOKEN, 10)
    assert await queue.release(key, TOKEN, first, {})
    attempts = []
    for worker in "abc":
        await end_leases(redis, key)
        # Twice, as by a worker that got no reply: it counts once.
        for _ in range(2):
            second, third = await queue.next_held(key, worker, 10)
        attempts.append((second.attempt, third.attempt))
    assert attempts == [(2, 1), (3, 1), (4, 1)]
    assert await queue.release(key, "c", second, {})
    (third,) = await queue.next_held(key, "c", 10)
    assert third.attempt == 2
