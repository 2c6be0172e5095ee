"""Pauses of flows in Redis: which batches are given out, what is queued, and when they end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from mediator.base.errors import TooManyRequests
from mediator.coordination.message_queue import QueueBounds, RedisMessageQueue
from mediator.flows.queue import Batch, End, Ended, FlowKey, FlowLoad, NewMessage, NoBatch
from mediator.model.pause import Pause
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import unique

TOKEN, OTHER = "worker", "other"
LONG = Pause(1, 2, 3600.0)


@pytest.fixture
async def redis(redis_config: SystemConfig) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_config.url) as client:
        yield client


@pytest.fixture
def queue(redis: Redis) -> RedisMessageQueue:
    return RedisMessageQueue(redis)


@pytest.fixture
async def key(queue: RedisMessageQueue) -> AsyncIterator[FlowKey]:
    """A flow whose messages are late after a millisecond."""
    flow_key = FlowKey(unique(), unique())
    assert await queue.put_flow(flow_key, {}, 0.0, 1)
    yield flow_key
    await queue.drop_flow(flow_key)


async def send(queue: RedisMessageQueue, key: FlowKey, values: str) -> None:
    await queue.enqueue(key, [NewMessage(unique("m"), value, b"{}") for value in values], None)


async def take(queue: RedisMessageQueue, key: FlowKey, wait_s: float = 0.0) -> Batch:
    batch = await queue.take(key, TOKEN, wait_s)
    assert isinstance(batch, Batch)
    return batch


async def load(queue: RedisMessageQueue, key: FlowKey) -> FlowLoad:
    (flow_load,) = await queue.loads([key])
    return flow_load


async def test_a_paused_flow_queues_messages_until_it_is_full_and_gives_none_out(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    queue.bounds = QueueBounds(messages=3)
    assert await queue.pause(key, LONG) is True
    await send(queue, key, "ABC")
    with pytest.raises(TooManyRequests):
        await send(queue, key, "D")
    for wait_s in (0.0, 10.0):
        reply = await queue.take(key, TOKEN, wait_s)
        assert isinstance(reply, NoBatch)
        assert reply.due_in_s is not None
        assert 3000 < reply.due_in_s <= 3600
    pause = (await queue.report(key))["paused"]
    assert (pause.version, pause.rule) == (1, 2)
    assert 3000 < pause.seconds <= 3600
    assert await queue.resume(key)
    assert not await queue.resume(key)
    assert len((await take(queue, key)).messages) == 1
    assert (await queue.report(key))["paused"] is None


async def test_no_batch_of_a_worker_that_is_gone_is_given_out_in_a_pause(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    queue.bounds = QueueBounds(lease_s=0.001)
    await send(queue, key, "A")
    batch = await take(queue, key)
    await queue.pause(key, LONG)

    async def has_ended() -> bool:
        return not await queue.renew(key, batch.number, TOKEN)

    await eventually(has_ended)
    assert isinstance(await queue.take(key, OTHER, 0), NoBatch)
    await queue.resume(key)
    second = await queue.take(key, OTHER, 0)
    assert isinstance(second, Batch)
    assert (second.number, second.attempt) == (batch.number, 2)


async def test_a_batch_under_way_ends_in_a_pause(queue: RedisMessageQueue, key: FlowKey) -> None:
    await send(queue, key, "AB")
    batch = await take(queue, key)
    await queue.pause(key, LONG)
    rows = [Ended(message, End.DONE, b"{}") for message in batch.messages]
    assert await queue.end_batch(key, batch.number, TOKEN, rows, {}, ordered=True)
    (held,) = await queue.next_held(key, TOKEN, 10)
    assert await queue.release(key, TOKEN, held, {})
    assert (await load(queue, key)).queued == 1


async def test_a_pause_ends_after_its_time_and_a_later_one_replaces_it(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    await send(queue, key, "A")
    assert await queue.pause(key, LONG) is True
    assert await queue.pause(key, Pause(1, 3, 0.05)) is False

    async def is_over() -> bool:
        return isinstance(await queue.take(key, TOKEN, 0), Batch)

    await eventually(is_over)
    assert (await queue.report(key))["counts"] == {"pauses": 1}


async def test_the_queue_is_behind_until_it_has_caught_up(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    """By being empty, or at a partition that is not due."""
    await send(queue, key, "A")
    assert not (await take(queue, key)).is_behind
    await queue.pause(key, LONG)
    await send(queue, key, "BCD")
    await queue.resume(key)
    assert [(await take(queue, key)).is_behind for _ in "BCD"] == [True] * 3
    await send(queue, key, "E")
    assert (await take(queue, key)).is_behind
    await queue.take(key, OTHER, 0)
    await send(queue, key, "F")
    assert not (await take(queue, key)).is_behind
    await queue.pause(key, LONG)
    await queue.resume(key)
    await send(queue, key, "G")
    assert not (await take(queue, key, 3600)).is_behind


async def test_only_pauses_by_former_rules_end_with_them(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    await queue.pause(key, Pause(4, 1, 3600.0))
    await queue.end_pauses([key], 4)
    assert (await load(queue, key)).paused_s > 0
    await queue.end_pauses([key], 5)
    assert (await load(queue, key)).paused_s == 0


async def test_a_pause_makes_messages_late(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis
) -> None:
    await queue.pause(key, LONG)
    await send(queue, key, "A")

    async def is_late() -> bool:
        seconds, microseconds = await redis.time()
        return bool(seconds * 1000 + microseconds // 1000 > arrived_ms + 1)

    await queue.resume(key)
    batch = await take(queue, key)
    arrived_ms = batch.messages[0].arrived_ms
    await eventually(is_late)
    rows = [Ended(message, End.FAILED, b"{}") for message in batch.messages]
    assert await queue.end_batch(key, batch.number, TOKEN, rows, {}, ordered=False)
    # A dead letter is no longer queued.
    assert await load(queue, key) == FlowLoad(0, 1, 1, 0.0)
    for name in [name async for name in redis.scan_iter(match=f"*{key.flow}*late:*")]:
        assert 0 < await redis.pttl(name) <= 60_000
        await redis.delete(name)  # as if it had expired
    assert await load(queue, key) == FlowLoad(0, 0, 1, 0.0)


async def test_a_flow_that_is_gone_is_not_paused(queue: RedisMessageQueue, key: FlowKey) -> None:
    await queue.pause(key, LONG)
    await queue.drop_flow(key)
    assert await queue.pause(key, LONG) is None
    assert await queue.loads([key]) == [FlowLoad(0, 0, 0, 0.0)]
    assert await queue.loads([]) == []
