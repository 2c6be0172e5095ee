"""The queue of messages in Redis: partitions, leases, and the order in which messages end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from mediator.base.errors import TooManyRequests
from mediator.coordination.message_queue import MAX_BATCH_MESSAGES, QueueBounds, RedisMessageQueue
from mediator.flows.queue import Batch, End, FlowKey, NoBatch
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.flows.batches import OTHER, TOKEN, end_rows, messages, take_batch
from tests.process.flows.keys import key_of

CUSTOMERS = "ABACBC"
"""Of the messages m1 to m6 in the paper's figures."""


def counters_of(values: Sequence[str]) -> list[int]:
    """Return the paper's counters: the queued messages behind the position of each new one."""
    partitions: dict[str, int] = {}
    counters = []
    for value in values:
        behind = (
            list(partitions)[list(partitions).index(value) + 1 :] if value in partitions else []
        )
        counters.append(sum(partitions[name] for name in behind))
        partitions[value] = partitions.get(value, 0) + 1
    return counters


async def seconds_of(redis: Redis) -> float:
    now: Any = await redis.time()
    return float(now[0] + now[1] / 1e6)


async def put_due(redis: Redis, key: FlowKey, in_s: float) -> None:
    """Let the next partition be due in some seconds."""
    await redis.set(key_of(key, "due"), round((await seconds_of(redis) + in_s) * 1e6))


async def end_soon(redis_config: SystemConfig, key: FlowKey, lease: str) -> None:
    """Let a lease end in a moment, once the worker has done its work under it."""
    async with Redis.from_url(redis_config.url) as redis:
        assert await redis.pexpire(key_of(key, lease), 50)


async def test_messages_of_one_value_are_one_batch_and_the_oldest_batch_is_next(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    """Oracle E1: m1 m3, m2 m5, m4 m6."""
    assert await queue.enqueue(key, messages(CUSTOMERS), None) is None
    batches = [await take_batch(queue, key) for _ in range(3)]
    positions = [[message.position for message in batch.messages] for batch in batches]
    assert positions == [[1, 3], [2, 5], [4, 6]]
    assert [batch.partitions for batch in batches] == [3, 2, 1]
    assert await queue.take(key, TOKEN, 0) == NoBatch(None)
    assert counters_of(CUSTOMERS) == [0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("seed", range(10))
async def test_messages_end_in_order_exactly_when_the_counters_of_the_paper_let_them(
    queue: RedisMessageQueue, key: FlowKey, seed: int
) -> None:
    """59 messages of 7 values, queued and executed in any interleaving; some of them fail."""
    chance = random.Random(seed)
    queued: dict[str, list[int]] = {}
    counters: dict[int, int] = {}
    held: set[int] = set()
    sent: list[int] = []
    released: list[int] = []
    arrived = 0
    while arrived < 59 or queued:
        if arrived < 59 and (not queued or chance.random() < 0.6):
            value = chance.choice("ABCDEFG")
            await queue.enqueue(key, messages([value]), None)
            arrived += 1
            names = list(queued)
            behind = names[names.index(value) + 1 :] if value in queued else []
            counters[arrived] = sum(len(queued[name]) for name in behind)
            queued.setdefault(value, []).append(arrived)
            continue
        batch = await take_batch(queue, key)
        end = chance.choice([End.DONE, End.FAILED])
        assert await queue.end_batch(
            key, batch.number, TOKEN, end_rows(batch, end), {}, ordered=True
        )
        for position in queued.pop(next(iter(queued))):
            for later in [p for p in held if p > position]:
                counters[later] -= 1
            held.add(position)
        sent += (due := sorted(p for p in held if not counters[p]))
        held -= set(due)
        for message in await queue.next_held(key, TOKEN, 100):
            assert await queue.release(key, TOKEN, message, {})
            released.append(message.message.position)
        assert released == sent
    assert released == list(range(1, 60))


async def test_a_batch_whose_lease_has_ended_is_given_to_another_worker(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    await queue.enqueue(key, messages("AAB"), None)
    first, second = await take_batch(queue, key), await take_batch(queue, key)
    await end_soon(redis_config, key, f"lease:{first.number}")

    async def is_taken_over() -> bool:
        reply = await queue.take(key, OTHER, 0)
        return isinstance(reply, Batch) and reply.number == first.number and reply.attempt == 2

    await eventually(is_taken_over)
    assert not await queue.renew(key, first.number, TOKEN)
    assert not await queue.end_batch(key, first.number, TOKEN, end_rows(first), {}, ordered=False)
    states = [await queue.ticket(key, message.ticket) for message in first.messages]
    assert [state.state for state in states if state] == ["queued", "queued"]
    assert second.number != first.number


async def test_the_next_batch_is_given_out_once_in_a_waiting_time_to_all_workers_together(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    await queue.enqueue(key, messages("ABC"), None)
    assert isinstance(await queue.take(key, TOKEN, 60), Batch)
    for token in (TOKEN, OTHER):
        reply = await queue.take(key, token, 60)
        assert isinstance(reply, NoBatch)
        assert reply.due_in_s is not None
        assert 0 < reply.due_in_s <= 60


@pytest.mark.parametrize("name", ["lease:2", "lease:out"])
async def test_a_clock_of_redis_that_is_set_back_stops_no_flow(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig, name: str
) -> None:
    """Leases then last an hour longer: here they are set to."""
    await queue.enqueue(key, messages("ABC"), None)
    batch = await take_batch(queue, key)
    await queue.end_batch(key, batch.number, TOKEN, end_rows(batch), {}, ordered=True)
    await queue.next_held(key, TOKEN, 1)
    assert isinstance(await queue.take(key, TOKEN, 10), Batch)
    async with Redis.from_url(redis_config.url) as redis:
        lease_key = key_of(key, name)
        assert await redis.pexpire(lease_key, 3_600_000)
        await queue.take(key, OTHER, 10)
        await queue.next_held(key, OTHER, 1)
        assert await redis.pttl(lease_key) <= queue.bounds.lease_ms


async def test_a_clock_of_redis_that_is_set_back_makes_no_partition_wait_longer(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    await queue.enqueue(key, messages("AB"), None)
    async with Redis.from_url(redis_config.url) as redis:
        await put_due(redis, key, 3600)
        assert await queue.take(key, TOKEN, 60) == NoBatch(60)
        due_us = int(await redis.get(key_of(key, "due")) or 0)
        assert due_us <= (await seconds_of(redis) + 60) * 1e6


async def test_a_shorter_waiting_time_holds_at_once(queue: RedisMessageQueue, key: FlowKey) -> None:
    await queue.enqueue(key, messages("ABC"), None)
    assert isinstance(await queue.take(key, TOKEN, 3600), Batch)
    await queue.take(key, TOKEN, 0.01)
    due = await queue.take(key, TOKEN, 0.01)
    assert isinstance(due, Batch) or (due.due_in_s is not None and due.due_in_s <= 0.01)


async def test_an_overdue_batch_does_not_wait(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    """Each partition is due once in as many waits as there are partitions."""
    wait_s = 1.0
    async with Redis.from_url(redis_config.url) as redis:

        async def is_late() -> bool:
            return await seconds_of(redis) > arrived + 2 * wait_s

        await queue.enqueue(key, messages("ABC"), None)
        arrived = await seconds_of(redis)
        await eventually(is_late)
        for _ in "AB":
            assert isinstance(await queue.take(key, TOKEN, wait_s), Batch)
        await put_due(redis, key, 60)
    await queue.enqueue(key, messages("D"), None)
    reply = await queue.take(key, TOKEN, 60)
    assert isinstance(reply, NoBatch)


async def test_the_wait_is_from_one_due_time_to_the_next_however_late_a_worker_is(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    """Otherwise the time that a batch takes beyond the wait would be lost for all others."""
    wait_s = 0.5
    async with Redis.from_url(redis_config.url) as redis:

        async def is_late() -> bool:
            return await seconds_of(redis) > start_s + 2 * wait_s

        await queue.enqueue(key, messages("ABCDEFGH"), None)
        assert isinstance(await queue.take(key, TOKEN, wait_s), Batch)
        start_s = await seconds_of(redis)
        await eventually(is_late)
    for _ in "BC":
        assert isinstance(await queue.take(key, TOKEN, wait_s), Batch)


async def test_time_before_a_message_arrived_is_not_made_up_for(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    async with Redis.from_url(redis_config.url) as redis:
        await put_due(redis, key, -3600)
    await queue.enqueue(key, messages("AB"), None)
    assert isinstance(await queue.take(key, TOKEN, 60), Batch)
    reply = await queue.take(key, TOKEN, 60)
    assert isinstance(reply, NoBatch)
    assert reply.due_in_s is not None
    assert 0 < reply.due_in_s <= 60


async def test_messages_are_queued_by_the_present_level_and_stay_where_they_are(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    """Equal values of two levels are two partitions; the oldest one is next, whatever its level."""
    values = [one * 32 + other * 32 for one, other in ("ac", "bc", "ad")]
    await queue.enqueue(key, messages(values), None)
    await queue.set_level(key, 1)
    await queue.enqueue(key, messages([*values, "c" * 32 + "a" * 32]), None)
    await queue.set_level(key, 0)
    await queue.enqueue(key, messages(values[:1]), None)
    batches = [await take_batch(queue, key) for _ in range(5)]
    positions = [[message.position for message in batch.messages] for batch in batches]
    assert positions == [[1, 3, 8], [2], [4, 5], [6], [7]]
    assert {batch.level for batch in batches} == {0}
    assert (await queue.report(key))["level"] == 0


async def test_a_flow_that_is_gone_gets_no_level(queue: RedisMessageQueue, key: FlowKey) -> None:
    await queue.drop_flow(key)
    await queue.set_level(key, 1)
    assert (await queue.report(key))["level"] == 0


async def test_ten_thousand_values_are_executed_in_order_and_leave_nothing(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    """More than the 8,000 values that Redis lets a script unpack at once."""
    queue.bounds = QueueBounds(messages=10_000)
    for start in range(0, 10_000, 1000):
        await queue.enqueue(key, messages([f"{start + n:032}" for n in range(1000)]), None)
    with pytest.raises(TooManyRequests):
        await queue.enqueue(key, messages("A"), None)
    for position in range(1, 101):
        batch = await take_batch(queue, key)
        assert [message.position for message in batch.messages] == [position]
        assert batch.partitions == 10_001 - position
        assert await queue.end_batch(key, batch.number, TOKEN, end_rows(batch), {}, ordered=False)
    report = await queue.report(key)
    assert (report["queued"], report["partitions"]) == (9_900, 9_900)
    assert await queue.drop_flow(key)
    async with Redis.from_url(redis_config.url) as redis:
        keys = [name async for name in redis.scan_iter(match=f"*{key.flow}*", count=10_000)]
        assert all([await redis.pttl(name) > 0 for name in keys])
        assert sum(name.startswith(key_of(key, "result:").encode()) for name in keys) == 100


async def test_a_partition_is_never_larger_than_a_batch(
    queue: RedisMessageQueue, key: FlowKey
) -> None:
    limit = MAX_BATCH_MESSAGES
    await queue.enqueue(key, messages("A" * (limit + 1)), None)
    assert [len((await take_batch(queue, key)).messages) for _ in range(2)] == [limit, 1]


async def test_one_worker_sends_at_a_time(queue: RedisMessageQueue, key: FlowKey) -> None:
    await queue.enqueue(key, messages("AA"), None)
    batch = await take_batch(queue, key)
    assert await queue.end_batch(key, batch.number, TOKEN, end_rows(batch), {}, ordered=True)
    first, second = await queue.next_held(key, TOKEN, 10)
    assert await queue.next_held(key, OTHER, 10) == []
    assert not await queue.release(key, OTHER, first, {})
    assert await queue.release(key, TOKEN, first, {})
    # A worker that was paused does not send a released message again.
    assert not await queue.release(key, TOKEN, first, {})
    assert await queue.release(key, TOKEN, second, {})
    # Nothing is left: any worker can send the next message at once.
    await queue.enqueue(key, messages("A"), None)
    batch = await take_batch(queue, key, OTHER)
    assert await queue.end_batch(key, batch.number, OTHER, end_rows(batch), {}, ordered=True)
    assert len(await queue.next_held(key, OTHER, 10)) == 1


async def test_only_a_message_that_a_worker_had_started_can_have_been_sent_before(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    await queue.enqueue(key, messages("AAA"), None)
    batch = await take_batch(queue, key)
    assert await queue.end_batch(key, batch.number, TOKEN, end_rows(batch), {}, ordered=True)
    first, *_ = page = await queue.next_held(key, TOKEN, 10)
    assert [held.is_repeated for held in page] == [False] * 3
    assert await queue.release(key, TOKEN, first, {"lookups": 2})
    await end_soon(redis_config, key, "lease:out")

    async def is_taken_over() -> bool:
        nonlocal page
        page = await queue.next_held(key, OTHER, 10)
        return bool(page)

    await eventually(is_taken_over)
    assert [(held.message.position, held.is_repeated) for held in page] == [(2, True), (3, False)]
    assert (await queue.report(key))["counts"]["lookups"] == 2


async def test_a_flow_that_is_dropped_leaves_nothing_but_results_behind(
    queue: RedisMessageQueue, key: FlowKey, redis_config: SystemConfig
) -> None:
    await queue.enqueue(key, messages("ABA"), ("key", "fingerprint"))
    await take_batch(queue, key)
    assert await queue.drop_flow(key)
    # By a worker that started its batch before.
    await queue.publish(key, {"rate": 1.0})
    async with Redis.from_url(redis_config.url) as redis:
        keys = [name async for name in redis.scan_iter(match=f"*{key.flow}*", count=1000)]
        assert all([await redis.pttl(name) > 0 for name in keys])
