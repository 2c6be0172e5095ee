"""The queues of message flows in the coordination Redis; `scripts/flow_common.lua` lists the keys.

All keys of a flow share one hash tag, so that one script sees them all. The flows are on the same
server as their messages: if it loses its last second, it loses both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from mediator.base.errors import IdempotencyReused, NotFound, TooManyRequests
from mediator.coordination.ended_rows import ended_rows
from mediator.coordination.errors import reply_of, texts_of
from mediator.coordination.pauses import Pauses
from mediator.coordination.result_positions import last_position, require_following
from mediator.coordination.scripts import RETRIED_S, text_of
from mediator.flows.queue import (
    LEASE_S,
    LEVEL_DIGITS,
    MAX_QUEUED,
    Batch,
    DeadLetter,
    End,
    Ended,
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
from mediator.model.result_position import ResultPosition
from mediator.stores.port import RETENTION_S

__all__ = [
    "KEY_RETENTION_S",
    "MAX_BATCH_MESSAGES",
    "MAX_RESULTS",
    "RESULT_RETENTION_S",
    "QueueBounds",
    "RedisMessageQueue",
]

MAX_BATCH_MESSAGES: Final = 500
"""Limit of messages in one partition; further ones of its value form another."""

RESULT_RETENTION_S: Final = 3600
"""Seconds for which the result of a message is kept."""

KEY_RETENTION_S: Final = RETENTION_S
"""Seconds for which an Idempotency-Key is kept: as long as stores remember its messages' writes."""

MAX_RESULTS: Final = 10_000
"""Limit of ended messages per flow that can be followed."""

_SPAN_S: Final = 30
"""Seconds of a time span: recently late messages are those of this span and the previous one."""

_PAGE_BYTES: Final = 2**20
"""Bytes beyond which a page of results, or of messages to be sent, gets no more."""

_FLOW: Final = "flow"
"""The id of the pause under the keys of a flow."""

_CONSTANTS: Final = {
    "MAX_BATCH_MESSAGES": MAX_BATCH_MESSAGES,
    "RESULT_MS": RESULT_RETENTION_S * 1000,
    "LEVEL_DIGITS": LEVEL_DIGITS,
    "MAX_RESULTS": MAX_RESULTS,
    "SPAN_MS": _SPAN_S * 1000,
    "FLOW": f"'{_FLOW}'",
}
"""The constants of the scripts."""

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


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The bounds of a flow.

    Attributes:
        lease_s: Seconds after which another worker gets a batch, unless its lease is renewed.
        messages: Limit of messages that have not ended, including dead letters.
    """

    lease_s: float = LEASE_S
    messages: int = MAX_QUEUED

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
        self, key: FlowKey, document: Mapping[str, Any], bound_s: float, limit: int
    ) -> bool:
        present = await self.flows()
        if sum(flow.database == key.database for flow in present) >= limit:
            return False
        # The last two exist as long as the flow: `set_level` and `publish` rely on it.
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
        # Messages first: after a failure in between, the flow can be dropped again.
        await self._call("drop", key)
        return bool(await reply_of(self._redis.hdel(_FLOWS, "/".join(key))))

    async def clear(self, database: str) -> None:
        for key in await self.flows():
            if key.database == database:
                await self.drop_flow(key)

    async def enqueue(
        self, key: FlowKey, messages: Sequence[NewMessage], retry: tuple[str, str] | None
    ) -> str | None:
        # Without a key, by a ticket: the driver resends the call if a connection was lost.
        id_, fingerprint = retry or (messages[0].ticket, "")
        kept_ms = (KEY_RETENTION_S if retry else RETRIED_S) * 1000
        head = (self.bounds.messages, id_, fingerprint, kept_ms)
        reply = await self._call("enqueue", key, *head, *_rows(messages))
        if reply == _GONE:
            raise _not_found()
        if reply == _REUSED:
            raise IdempotencyReused("The Idempotency-Key was used for other messages.")
        if reply == _FULL:
            raise self._full()
        return reply.decode() if retry and isinstance(reply, bytes) else None

    def _full(self) -> TooManyRequests:
        detail = (
            f"The flow has {self.bounds.messages} messages that have not ended, or would have"
            " more; dead letters count until they are replayed."
        )
        return TooManyRequests(detail, extra={"limit": "messages"})

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
        # If it ended in between, `end` refuses the calls of its holder.
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
        count_texts = [text for pair in counts.items() for text in pair]
        rows = [text for message in ended for text in _ended_row(message)]
        head = (token, batch, int(ordered), len(counts))
        return _recorded_reply(await self._call("end", key, *head, *count_texts, *rows))

    async def next_held(self, key: FlowKey, token: str, limit: int) -> list[Ended]:
        reply = await self._call("next", key, token, self.bounds.lease_ms, limit, _PAGE_BYTES)
        held = [_held_message(int(reply[i]), reply[i + 1]) for i in range(1, len(reply), 2)]
        # Messages after the first were not sent: it is released before them.
        return [held[0]._replace(attempt=int(reply[0])), *held[1:]] if held else []

    async def release(
        self, key: FlowKey, token: str, ended: Ended, counts: Mapping[str, int]
    ) -> Recorded | None:
        count_texts = [text for pair in counts.items() for text in pair]
        row = _ended_row(ended)
        return _recorded_reply(
            await self._call("release", key, token, self.bounds.lease_ms, *row, *count_texts)
        )

    async def ticket(self, key: FlowKey, ticket: str) -> Ticket | None:
        base = _base(key)
        waiting = await reply_of(self._redis.hget(f"{base}waiting", ticket))
        if waiting is not None:
            return Ticket("failed", orjson.loads(waiting)) if waiting else Ticket("queued")
        result = await reply_of(self._redis.get(f"{base}result:{ticket}"))
        return None if result is None else Ticket("done", orjson.loads(result))

    async def dead_letters(self, key: FlowKey, after: int, limit: int) -> list[DeadLetter]:
        base, letters = _base(key), list[DeadLetter]()
        while len(letters) < limit:
            remaining = limit - len(letters)
            rows = await reply_of(
                self._redis.zrangebyscore(
                    f"{base}dead", f"({after}", "+inf", start=0, num=remaining, withscores=True
                )
            )
            if not rows:
                break
            letters += await self._letters(base, rows)
            after = int(rows[-1][1])
        return letters

    async def _letters(
        self, base: str, rows: Sequence[tuple[bytes, float]]
    ) -> Iterable[DeadLetter]:
        """Return the letters that still exist: others are being replayed."""
        tickets = [ticket for ticket, _ in rows]
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hmget(f"{base}waiting", tickets)
            pipeline.hmget(f"{base}since", tickets)
            pipeline.time()
            documents, since, (seconds, us) = await reply_of(pipeline.execute())
        now_s = seconds + us / 1e6
        return [
            # A letter of an older version has no time, and counts as very old.
            DeadLetter(
                int(position),
                ticket.decode(),
                orjson.loads(document),
                max(0.0, now_s - int(arrived_ms or 0) / 1000),
            )
            for (ticket, position), document, arrived_ms in zip(rows, documents, since, strict=True)
            if document
        ]

    async def set_level(self, key: FlowKey, level: int) -> None:
        await reply_of(self._redis.set(f"{_base(key)}level", level, xx=True))

    async def results(
        self, key: FlowKey, after: ResultPosition | None, limit: int
    ) -> EndedMessages:
        begin = "-" if after is None else after.number + 1
        reply = await self._call("results", key, begin, limit, _PAGE_BYTES)
        if not reply:
            raise _not_found()
        last, rows = last_position(reply[0]), ended_rows(reply[1:])
        if after is not None:
            require_following(after, last, (rows[0].position, rows[0].content) if rows else None)
        items = [row.message() for row in rows if row.document]
        return EndedMessages(rows[-1].position if rows else last, items)

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
    return text_of("pauses", "appends", "digests", "flow_common", f"flow_{name}", **_CONSTANTS)


def _not_found() -> NotFound:
    return NotFound("There is no such message flow.")


def _base(key: FlowKey) -> str:
    return f"{{portolan:flow:{key.database}:{key.flow}}}:"


def _rows(messages: Iterable[NewMessage]) -> Iterable[str | bytes]:
    for message in messages:
        yield from (message.partition, message.ticket, message.body)


def _message(text: bytes) -> QueuedMessage:
    position, arrived_ms, ticket, body = text.split(b" ", 3)
    return QueuedMessage(int(position), int(arrived_ms), ticket.decode(), body)


def _recorded_reply(reply: Sequence[int]) -> Recorded | None:
    return Recorded(reply[0]) if reply else None


def _ended_row(ended: Ended) -> tuple[Any, ...]:
    message = ended.message
    head = (message.position, message.arrived_ms, message.ticket)
    return (*head, ended.end.value, ended.document)


def _held_message(position: int, row: bytes) -> Ended:
    arrived_ms, ticket, end, document = row.split(b" ", 3)
    message = QueuedMessage(position, int(arrived_ms), ticket.decode(), b"")
    return Ended(message, End(end.decode()), document)
