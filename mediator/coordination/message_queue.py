"""The queues of message flows in the coordination Redis; `scripts/flow_common.lua` lists the keys.

All keys of a flow share one hash tag, so that one script sees them all. The flows themselves are
beside their messages: a server that loses its last second loses both of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from mediator.base.errors import IdempotencyReused, NotFound, ResultGone, TooManyRequests
from mediator.coordination.errors import reply_of, texts_of
from mediator.coordination.pauses import Pauses, pauses_text
from mediator.flows.queue import (
    LEASE_S,
    LEVEL_DIGITS,
    MOST_QUEUED,
    Batch,
    DeadLetter,
    End,
    Ended,
    EndedMessage,
    EndedMessages,
    FlowKey,
    FlowLoad,
    NewMessage,
    NoBatch,
    QueuedMessage,
    Recorded,
    Ticket,
)
from mediator.model.pause import Pause
from redis_connection.scripts import lua_text

__all__ = ["LARGEST_BATCH", "MOST_RESULTS", "RESULTS_KEPT_S", "QueueBounds", "RedisMessageQueue"]

LARGEST_BATCH: Final = 500
"""Messages of one partition; further ones of its value make another."""

RESULTS_KEPT_S: Final = 3600
"""Seconds for which the result of a message, and an Idempotency-Key, are known."""

MOST_RESULTS: Final = 10_000
"""Messages that have ended, of a flow, and that can be followed."""

_SPAN_S: Final = 30
"""Seconds of a span of time: what was late lately is what was in this one and the one before."""

_PAGE_BYTES: Final = 2**20
"""Beyond these a page of results, or of messages to be sent, has no more."""

_FLOW: Final = "flow"
"""What is paused under the keys of a flow."""

_CONSTANTS: Final = {
    "LARGEST_BATCH": LARGEST_BATCH,
    "RESULT_MS": RESULTS_KEPT_S * 1000,
    "LEVEL_DIGITS": LEVEL_DIGITS,
    "MOST_RESULTS": MOST_RESULTS,
    "SPAN_MS": _SPAN_S * 1000,
    "FLOW": f"'{_FLOW}'",
}
"""Of the scripts."""

_FLOWS: Final = "portolan:flows"
_FULL, _REUSED, _GONE = -1, -2, -3
_NAMES: Final = (
    "drop",
    "end",
    "enqueue",
    "load",
    "next",
    "release",
    "replay",
    "results",
    "take",
)
_SCRIPTS: Final = "mediator.coordination.scripts"


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """What a flow may need.

    Attributes:
        lease_s: Seconds after which a batch is given to another worker, unless it is renewed.
        messages: That have not ended, dead letters included.
    """

    lease_s: float = LEASE_S
    messages: int = MOST_QUEUED

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)


class RedisMessageQueue:
    """Implements `mediator.flows.queue.MessageQueue` in one Redis."""

    def __init__(self, redis: Redis, bounds: QueueBounds | None = None) -> None:
        self._redis = redis
        self.bounds = bounds or QueueBounds()
        self._scripts = {name: redis.register_script(_script(name)) for name in _NAMES}
        self._pauses = Pauses(redis, _script("pause"))

    async def put_flow(
        self, key: FlowKey, document: Mapping[str, Any], bound_s: float, most: int
    ) -> bool:
        present = await self.flows()
        if sum(each.database == key.database for each in present) >= most:
            return False
        # The last two are there as long as the flow: `set_level` and `publish` rely on it.
        values: dict[str, int | str] = {"bound": round(bound_s * 1000), "level": 0, "report": ""}
        await reply_of(self._redis.mset({_base(key) + name: v for name, v in values.items()}))
        await reply_of(self._redis.hset(_FLOWS, "/".join(key), orjson.dumps(document)))
        return True

    async def flows(self) -> set[FlowKey]:
        names = await reply_of(self._redis.hkeys(_FLOWS))
        return {FlowKey(*name.decode().split("/")) for name in names}

    async def flow(self, key: FlowKey) -> Any:
        text = await reply_of(self._redis.hget(_FLOWS, "/".join(key)))
        return None if text is None else orjson.loads(text)

    async def drop_flow(self, key: FlowKey) -> bool:
        # Its messages first: after a failure between the two the flow can be dropped again.
        await self._call("drop", key)
        return bool(await reply_of(self._redis.hdel(_FLOWS, "/".join(key))))

    async def clear(self, database: str) -> None:
        for key in await self.flows():
            if key.database == database:
                await self.drop_flow(key)

    async def enqueue(
        self, key: FlowKey, messages: Sequence[NewMessage], retry: tuple[str, str] | None
    ) -> bool:
        reply = await self._call(
            "enqueue", key, self.bounds.messages, *(retry or ("", "")), *_rows(messages)
        )
        if reply == _GONE:
            raise NotFound("There is no such message flow.")
        if reply == _REUSED:
            raise IdempotencyReused("The Idempotency-Key was used for other messages.")
        if reply == _FULL:
            detail = (
                f"The flow has {self.bounds.messages} messages that have not ended, or would have"
                " more; dead letters count until they are replayed."
            )
            raise TooManyRequests(detail, extra={"limit": "messages"})
        return bool(reply)

    async def replay(self, key: FlowKey, messages: Sequence[NewMessage]) -> int:
        return int(await self._call("replay", key, *_rows(messages)))

    async def take(self, key: FlowKey, token: str, wait_s: float) -> Batch | NoBatch:
        lease_ms, wait_us = self.bounds.lease_ms, round(wait_s * 1e6)
        reply = await self._call("take", key, token, lease_ms, wait_us)
        if not reply:
            return NoBatch(None)
        if len(reply) == 1:
            return NoBatch(reply[0] / 1000)
        number, attempt, partitions, arrived, level, behind, *messages = reply
        queued = tuple(map(_message, messages))
        return Batch(number, attempt, partitions, arrived, level, bool(behind), queued)

    async def pause(self, key: FlowKey, pause: Pause) -> bool | None:
        return await self._pauses.begin(_base(key), _FLOW, pause)

    async def resume(self, key: FlowKey) -> bool:
        return await self._pauses.resume(_base(key), _FLOW)

    async def end_pauses(self, keys: Collection[FlowKey], before: int) -> None:
        await self._pauses.end([_base(key) for key in keys], before)

    async def loads(self, keys: Collection[FlowKey]) -> list[FlowLoad]:
        replies = await self._call_each("load", keys)
        return [FlowLoad(queued, late, ever, ms / 1000) for queued, late, ever, ms in replies]

    async def renew(self, key: FlowKey, batch: int | None, token: str) -> bool:
        lease = f"{_base(key)}lease:{'out' if batch is None else batch}"
        if await reply_of(self._redis.get(lease)) != token.encode():
            return False
        # If it ended in between, `end` refuses what its holder does.
        return bool(await reply_of(self._redis.pexpire(lease, self.bounds.lease_ms)))

    async def end_batch(
        self,
        key: FlowKey,
        batch: int,
        token: str,
        ended: Sequence[Ended],
        counts: Mapping[str, int],
        *,
        ordered: bool,
    ) -> Recorded | None:
        counted = [text for pair in counts.items() for text in pair]
        rows = [text for each in ended for text in _ended_row(each)]
        head = (token, batch, int(ordered), len(counts))
        return _recorded(await self._call("end", key, *head, *counted, *rows))

    async def next_held(self, key: FlowKey, token: str, most: int) -> list[Ended]:
        reply = await self._call("next", key, token, self.bounds.lease_ms, most, _PAGE_BYTES)
        held = [_held(int(reply[i]), reply[i + 1]) for i in range(1, len(reply), 2)]
        # What follows the first one was not sent: it is released before.
        return [held[0]._replace(attempt=int(reply[0])), *held[1:]] if held else []

    async def release(
        self, key: FlowKey, token: str, ended: Ended, counts: Mapping[str, int]
    ) -> Recorded | None:
        counted = [text for pair in counts.items() for text in pair]
        row = _ended_row(ended)
        return _recorded(
            await self._call("release", key, token, self.bounds.lease_ms, *row, *counted)
        )

    async def ticket(self, key: FlowKey, ticket: str) -> Ticket | None:
        base = _base(key)
        waiting = await reply_of(self._redis.hget(f"{base}waiting", ticket))
        if waiting is not None:
            return Ticket("failed", orjson.loads(waiting)) if waiting else Ticket("queued")
        result = await reply_of(self._redis.get(f"{base}result:{ticket}"))
        return None if result is None else Ticket("done", orjson.loads(result))

    async def dead_letters(self, key: FlowKey, after: int, most: int) -> list[DeadLetter]:
        base = _base(key)
        found = await reply_of(
            self._redis.zrangebyscore(
                f"{base}dead", f"({after}", "+inf", start=0, num=most, withscores=True
            )
        )
        if not found:
            return []
        tickets = [ticket for ticket, _ in found]
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hmget(f"{base}waiting", tickets)
            pipeline.hmget(f"{base}since", tickets)
            pipeline.time()
            documents, since, (seconds, us) = await reply_of(pipeline.execute())
        now_s = seconds + us / 1e6
        return [
            # One of an older version has no time: it counts as very old.
            DeadLetter(
                int(position),
                ticket.decode(),
                orjson.loads(document),
                max(0.0, now_s - int(arrived_ms or 0) / 1000),
            )
            for (ticket, position), document, arrived_ms in zip(
                found, documents, since, strict=True
            )
            if document  # else it is replayed at this moment
        ]

    async def set_level(self, key: FlowKey, level: int) -> None:
        await reply_of(self._redis.set(f"{_base(key)}level", level, xx=True))

    async def results(self, key: FlowKey, after: int | None, most: int) -> EndedMessages:
        behind = "" if after is None else after
        reply = await self._call("results", key, behind, most, _PAGE_BYTES)
        if not reply:
            raise ResultGone(f"What ended after {after} is not known any more.")
        items = [_ended_message(*reply[i : i + 4]) for i in range(1, len(reply), 4)]
        return EndedMessages(int(reply[0]), items)

    async def publish(self, key: FlowKey, report: Mapping[str, Any]) -> None:
        await reply_of(self._redis.set(f"{_base(key)}report", orjson.dumps(report), xx=True))

    async def report(self, key: FlowKey) -> dict[str, Any]:
        base = _base(key)
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(f"{base}counts")
            pipeline.zcard(f"{base}queue")
            pipeline.hlen(f"{base}waiting")
            pipeline.hlen(f"{base}held")
            pipeline.zcard(f"{base}dead")
            pipeline.get(f"{base}level")
            pipeline.get(f"{base}report")
            replies = await reply_of(pipeline.execute())
        counts, partitions, waiting, held, dead, level, report = replies
        numbers = {name: int(text) for name, text in texts_of(counts).items()}
        sizes = {"partitions": partitions, "held": held, "dead_letters": dead}
        sizes |= {"queued": waiting - dead, "level": int(level or 0)}
        measured = orjson.loads(report) if report else None
        pause = (await self._pauses.lasting(base)).get(_FLOW)
        return {"counts": numbers, **sizes, "paused": pause, "measured": measured}

    async def _call_each(self, name: str, keys: Collection[FlowKey], *arguments: Any) -> list[Any]:
        if not keys:
            return []
        async with self._redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                await self._scripts[name](keys=[_base(key)], args=arguments, client=pipeline)
            return list(await reply_of(pipeline.execute()))

    async def _call(self, name: str, key: FlowKey, *arguments: Any) -> Any:
        return await reply_of(self._scripts[name](keys=[_base(key)], args=arguments))


def _script(name: str) -> str:
    constants = "\n".join(f"local {name} = {value}" for name, value in _CONSTANTS.items())
    files = "flow_common", f"flow_{name}"
    return "\n".join((constants, pauses_text(), *(lua_text(_SCRIPTS, each) for each in files)))


def _base(key: FlowKey) -> str:
    return f"{{portolan:flow:{key.database}:{key.flow}}}:"


def _rows(messages: Iterable[NewMessage]) -> Iterable[str | bytes]:
    for each in messages:
        yield from (each.partition, each.ticket, each.body)


def _message(text: bytes) -> QueuedMessage:
    position, arrived_ms, ticket, body = text.split(b" ", 3)
    return QueuedMessage(int(position), int(arrived_ms), ticket.decode(), body)


def _recorded(reply: Sequence[int]) -> Recorded | None:
    return Recorded(reply[0]) if reply else None


def _ended_row(ended: Ended) -> tuple[Any, ...]:
    message = ended.message
    head = (message.position, message.arrived_ms, message.ticket)
    return (*head, ended.end.value, ended.document)


def _ended_message(
    position: bytes | int, ticket: bytes, end: bytes, document: bytes
) -> EndedMessage:
    return EndedMessage(int(position), ticket.decode(), End(end.decode()), orjson.loads(document))


def _held(position: int, row: bytes) -> Ended:
    arrived_ms, ticket, end, document = row.split(b" ", 3)
    message = QueuedMessage(position, int(arrived_ms), ticket.decode(), b"")
    return Ended(message, End(end.decode()), document)
