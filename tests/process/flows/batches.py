"""Batches that are taken from the queue and ended without a worker."""

from __future__ import annotations

from collections.abc import Sequence

from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.queue import Batch, End, Ended, FlowKey, NewMessage
from tests.process.service import unique

__all__ = ["OTHER", "TOKEN", "end_all", "end_rows", "messages", "take_batch"]

TOKEN, OTHER = "worker", "other"


def messages(values: Sequence[str]) -> list[NewMessage]:
    return [NewMessage(unique("m"), value, b"{}") for value in values]


async def take_batch(queue: RedisMessageQueue, key: FlowKey, token: str = TOKEN) -> Batch:
    batch = await queue.take(key, token, 0)
    assert isinstance(batch, Batch)
    return batch


def end_rows(batch: Batch, end: End = End.DONE) -> list[Ended]:
    return [Ended(message, end, b"{}") for message in batch.messages]


async def end_all(
    queue: RedisMessageQueue, key: FlowKey, sent: Sequence[NewMessage], end: End = End.DONE
) -> None:
    """Queue messages of one value, and end them."""
    assert await queue.enqueue(key, sent, None) is None
    batch = await take_batch(queue, key)
    assert [message.ticket for message in batch.messages] == [message.ticket for message in sent]
    assert await queue.end_batch(key, batch.number, TOKEN, end_rows(batch, end), {}, ordered=False)
