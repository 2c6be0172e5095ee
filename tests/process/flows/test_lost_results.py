"""A coordination Redis that has lost its last results of a flow gives their numbers again."""

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
    async with Redis.from_url(redis_config.url) as opened:
        yield opened


async def behind(
    queue: RedisMessageQueue, key: FlowKey, after: ResultPosition | None
) -> EndedMessages:
    return await queue.results(key, after, 100)


def tickets_of(found: EndedMessages) -> list[str]:
    return [each.ticket for each in found.items]


async def test_the_same_results_are_followed_and_others_are_not(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis
) -> None:
    sent, others = messages("AAAA"), messages("AA")
    names = [each.ticket for each in sent]
    await end_all(queue, key, sent[:2])
    kept = await keys_under(redis, key_of(key, ""))
    await end_all(queue, key, sent[2:])
    found = await behind(queue, key, None)
    seen = [each.position for each in found.items]
    assert (tickets_of(found), found.position) == (names, seen[-1])

    await go_back(redis, key_of(key, ""), kept)
    assert await behind(queue, key, seen[1]) == EndedMessages(seen[1], [])
    for lost in seen[2:]:
        with pytest.raises(PositionGone):
            await behind(queue, key, lost)

    await end_all(queue, key, sent[2:])
    for at, position in enumerate(seen, 1):
        again = await behind(queue, key, position)
        assert (tickets_of(again), again.position) == (names[at:], seen[-1])

    # The last one alone is as it was: what follows the others has not been seen.
    await go_back(redis, key_of(key, ""), kept)
    await end_all(queue, key, [others[0], sent[3], others[1]])
    new = [others[0].ticket, names[3], others[1].ticket]
    assert tickets_of(await behind(queue, key, seen[1])) == new
    for lost in seen[2:]:
        with pytest.raises(PositionGone, match="lost"):
            await behind(queue, key, lost)
    # A plain number does not say what was seen.
    assert tickets_of(await behind(queue, key, ResultPosition(4))) == new[2:]

    await go_back(redis, key_of(key, ""), kept)
    await end_all(queue, key, sent[2:], End.FAILED)
    with pytest.raises(PositionGone, match="lost"):
        await behind(queue, key, seen[3])


async def test_what_is_kept_no_longer_is_passed(
    queue: RedisMessageQueue, key: FlowKey, redis: Redis
) -> None:
    sent = messages("AAA")
    await end_all(queue, key, sent)
    everything = await behind(queue, key, None)
    # As time does.
    await redis.delete(*(key_of(key, f"result:{each.ticket}") for each in sent[1:]))
    found = await behind(queue, key, everything.items[0].position)
    assert found == EndedMessages(everything.position, [])
