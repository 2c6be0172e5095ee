"""A coordination Redis that has lost its last results of a flow gives out their numbers again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from mediator.changes.feed import PositionGone
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.queue import End, EndedMessages, FlowKey
from mediator.model.result_position import ResultPosition
from mediator.stores.port import SystemConfig
from tests.process.flows.batches import end_all, messages
from tests.process.flows.keys import key_of
from tests.process.redis_keys import go_back, keys_under


@pytest.fixture
async def redis(redis_config: SystemConfig) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_config.url) as client:
        yield client


async def results_after(
    queue: RedisMessageQueue, key: FlowKey, after: ResultPosition | None
) -> EndedMessages:
    return await queue.results(key, after, 100)


def tickets_of(page: EndedMessages) -> list[str]:
    return [message.ticket for message in page.items]


async def test_the_same_results_are_followed_and_others_are_not(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis
) -> None:
    sent, other_messages = messages("AAAA"), messages("AA")
    tickets = [message.ticket for message in sent]
    await end_all(queue, key, sent[:2])
    state = await keys_under(redis, key_of(key, ""))
    await end_all(queue, key, sent[2:])
    page = await results_after(queue, key, None)
    positions = [message.position for message in page.items]
    assert (tickets_of(page), page.position) == (tickets, positions[-1])

    await go_back(redis, key_of(key, ""), state)
    assert await results_after(queue, key, positions[1]) == EndedMessages(positions[1], [])
    for position in positions[2:]:
        with pytest.raises(PositionGone):
            await results_after(queue, key, position)

    await end_all(queue, key, sent[2:])
    for count, position in enumerate(positions, 1):
        next_page = await results_after(queue, key, position)
        assert (tickets_of(next_page), next_page.position) == (tickets[count:], positions[-1])

    # Only the last one is as it was: the reader has not seen what follows the others.
    await go_back(redis, key_of(key, ""), state)
    await end_all(queue, key, [other_messages[0], sent[3], other_messages[1]])
    new = [other_messages[0].ticket, tickets[3], other_messages[1].ticket]
    assert tickets_of(await results_after(queue, key, positions[1])) == new
    for position in positions[2:]:
        with pytest.raises(PositionGone, match="lost"):
            await results_after(queue, key, position)
    # A plain number does not identify the result.
    assert tickets_of(await results_after(queue, key, ResultPosition(4))) == new[2:]

    await go_back(redis, key_of(key, ""), state)
    await end_all(queue, key, sent[2:], End.FAILED)
    with pytest.raises(PositionGone, match="lost"):
        await results_after(queue, key, positions[3])


async def test_results_that_have_expired_are_skipped(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis
) -> None:
    sent = messages("AAA")
    await end_all(queue, key, sent)
    all_results = await results_after(queue, key, None)
    # As expiry does.
    await redis.delete(*(key_of(key, f"result:{message.ticket}") for message in sent[1:]))
    page = await results_after(queue, key, all_results.items[0].position)
    assert page == EndedMessages(all_results.position, [])
