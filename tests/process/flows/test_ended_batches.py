"""Batches that end by several calls, and messages that are sent in order, in Redis."""

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
    async with Redis.from_url(redis_config.url) as opened:
        yield opened


@pytest.fixture
def queue(redis: Redis) -> RedisMessageQueue:
    return RedisMessageQueue(redis)


@pytest.fixture
async def key(queue: RedisMessageQueue) -> AsyncIterator[FlowKey]:
    created = FlowKey(unique(), unique())
    assert await queue.put_flow(created, {}, 10.0, 1)
    yield created
    await queue.drop_flow(created)


def messages(number: int) -> list[NewMessage]:
    return [NewMessage(unique("m"), "A", b"{}") for _ in range(number)]


async def taken(queue: RedisMessageQueue, key: FlowKey, token: str = TOKEN) -> Batch:
    batch = await queue.take(key, token, 0)
    assert isinstance(batch, Batch)
    return batch


def ended(batch: Batch) -> list[Ended]:
    return [Ended(message, End.DONE, b"{}") for message in batch.messages]


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_batch_ends_in_parts_and_what_ended_is_not_given_out_again(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis, ordered: bool
) -> None:
    await queue.enqueue(key, messages(5), None)
    first = await taken(queue, key)
    counts = {"batches": 1}
    for some in (slice(0, 2), slice(2, 3)):
        # The second call is one that is sent again, as no reply has come.
        for _ in range(2):
            assert await queue.end_batch(
                key, first.number, TOKEN, ended(first)[some], counts, ordered=ordered
            )
    await end_leases(redis, key)
    rest = await taken(queue, key, OTHER)
    assert (rest.number, rest.attempt) == (first.number, 2)
    assert rest.messages == first.messages[3:]
    assert not await queue.end_batch(key, first.number, TOKEN, ended(first), {}, ordered=ordered)
    # A row too many, as by a worker that has not seen what the other one did.
    assert await queue.end_batch(key, rest.number, OTHER, ended(first), counts, ordered=ordered)
    report = await queue.report(key)
    assert report["counts"]["batches"] == 1
    assert (report["held"], report["counts"].get("done", 0)) == ((5, 0) if ordered else (0, 5))
    assert (await queue.results(key, None, 10)).position.number == (0 if ordered else 5)
    assert await queue.take(key, TOKEN, 0) == NoBatch(None)


async def test_large_results_are_given_out_some_at_a_time(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    await queue.enqueue(key, messages(5), None)
    batch = await taken(queue, key)
    large = orjson.dumps("x" * 600_000)
    held = [each._replace(document=large) for each in ended(batch)]
    assert await queue.end_batch(key, batch.number, TOKEN, held, {}, ordered=True)
    found = []
    while given := await queue.next_held(key, TOKEN, 10):
        found.append([each.message.position for each in given])
        for each in given:
            assert each.document == large
            assert await queue.release(key, TOKEN, each, {})
    assert found == [[1, 2], [3, 4], [5]]


async def test_workers_that_begin_to_send_a_message_are_counted(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis
) -> None:
    await queue.enqueue(key, messages(3), None)
    batch = await taken(queue, key)
    await queue.end_batch(key, batch.number, TOKEN, ended(batch), {}, ordered=True)
    first, *_ = await queue.next_held(key, TOKEN, 10)
    assert await queue.release(key, TOKEN, first, {})
    attempts = []
    for worker in "abc":
        await end_leases(redis, key)
        # Twice, as by a worker that has got no reply: it counts once.
        for _ in range(2):
            second, third = await queue.next_held(key, worker, 10)
        attempts.append((second.attempt, third.attempt))
    assert attempts == [(2, 1), (3, 1), (4, 1)]
    assert await queue.release(key, "c", second, {})
    (third,) = await queue.next_held(key, "c", 10)
    assert third.attempt == 2
