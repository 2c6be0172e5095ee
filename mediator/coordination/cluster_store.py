"""The logs, queues and records of clusters in Redis; all keys of a cluster share one hash tag.

| key | content |
|---|---|
| `portolan:clusters` | set: the names of clusters |
| `{portolan:cluster:<name>}:layout` | the layout on which all participants agree |
| `…:id` | a unique id, unlike that of a later cluster of the same name |
| `…:log:<relation>` | stream: tuples by number, as far as windows reach |
| `…:logs` | hash: the last number and the latest time of each log |
| `…:append:<relation>:<id>` | the number of the last tuple of an append, until it expires |
| `…:queue:<sender>><receiver>` | stream: frames of messages not yet taken |
| `…:record:<address>` | hash: the committed state of a participant, and its number of steps |
| `…:results` | stream: the results that workers emitted, by step |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final
from uuid import uuid4

import orjson
from pydantic import TypeAdapter
from redis.asyncio import Redis

from mediator.base.errors import TooManyRequests
from mediator.coordination.errors import reply_of
from mediator.coordination.scripts import RETRIED_S, text_of
from mediator.relocation.messages import MANAGER, OPERATOR, Message
from mediator.relocation.port import ClusterGone, Commit, Frame, Recorded, TakenOver
from mediator.relocation.split import LogEntry

__all__ = ["RedisClusterStore", "RedisClusters"]

MAX_LOG_ENTRIES: Final = 1_000_000
"""Limit of entries of a log."""

MAX_RESULTS: Final = 100_000
"""Limit of steps whose results are kept."""

_FRAME_MESSAGES: Final = 500
"""Messages per frame, which is sent and taken as one entry."""

_FRAMES: Final = 8
"""Frames that a participant takes from each queue at once."""

_TRIM_BATCH: Final = 1_000
"""Entries of a log that one trim checks."""

_UNLINK_BATCH: Final = 1_000
"""Keys that one call removes."""

_GONE: Final = -2
_NAMES: Final = "portolan:clusters"
_MESSAGES: Final[TypeAdapter[list[Message]]] = TypeAdapter(list[Message])
_CONSTANTS: Final = {"MAX_LOG_ENTRIES": MAX_LOG_ENTRIES, "MAX_RESULTS": MAX_RESULTS}


class RedisClusterStore:
    """Implements `mediator.relocation.port.ClusterStore` in one Redis."""

    def __init__(self, redis: Redis, name: str) -> None:
        self._redis = redis
        self._name = name
        self._base = _base(name)
        self._id = ""
        self._commit = redis.register_script(text_of("cluster_commit", **_CONSTANTS))
        self._append = redis.register_script(text_of("appends", "cluster_append", **_CONSTANTS))

    async def declare(self, layout: Any) -> bool:
        # Register the name first, so that no unregistered cluster exists.
        await reply_of(self._redis.sadd(_NAMES, self._name))
        id_ = uuid4().hex
        text: bytes | str = orjson.dumps(layout)
        new = {f"{self._base}layout": text, f"{self._base}id": id_}
        if not await reply_of(self._redis.msetnx(new)):
            return False
        self._id = id_
        return True

    async def layout(self) -> Any:
        keys = (f"{self._base}layout", f"{self._base}id")
        text, id_ = await reply_of(self._redis.mget(keys))
        if text is None:
            return None
        self._id = id_.decode()
        return orjson.loads(text)

    async def append(
        self, relation: str, tuples: Sequence[tuple[float, Mapping[str, Any] | None]]
    ) -> None:
        rows = [
            text
            for time_s, values in tuples
            for text in (repr(time_s), b"" if values is None else orjson.dumps(values))
        ]
        # With an id, as the driver resends the call if a connection was lost.
        arguments = (self._id, relation, uuid4().hex, RETRIED_S * 1000, *rows)
        reply = await reply_of(self._append(keys=[self._base], args=arguments))
        if reply == _GONE:
            raise ClusterGone
        if reply < 0:
            raise TooManyRequests(f"The log of {relation} is full: workers are too far behind.")

    async def log(self, relation: str, after: int, limit: int) -> list[LogEntry]:
        key = f"{self._base}log:{relation}"
        entries = await reply_of(self._redis.xrange(key, f"({after}-1", "+", limit))
        return [_entry(identity, fields) for identity, fields in entries]

    async def trim(self, relation: str, before_s: float) -> None:
        head = await self.log(relation, 0, _TRIM_BATCH)
        reachable = (entry for entry in head if entry.time_s >= before_s)
        first = next(reachable, head[-1] if head else None)
        if first is not None:
            key = f"{self._base}log:{relation}"
            await reply_of(self._redis.xtrim(key, minid=f"{first.number}-1", approximate=False))

    async def recorded(self, address: str) -> Recorded:
        fields = await reply_of(self._redis.hgetall(f"{self._base}record:{address}"))
        record = {name.decode(): orjson.loads(text) for name, text in fields.items()}
        return Recorded(record.pop("steps", 0), record)

    async def field(self, addresses: Sequence[str], name: str) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for address in addresses:
                pipeline.hget(f"{self._base}record:{address}", name)
            texts = await reply_of(pipeline.execute())
        return [None if text is None else orjson.loads(text) for text in texts]

    async def frames(
        self, address: str, senders: Sequence[str], log: tuple[str, int] | None, wait_s: float
    ) -> list[Frame]:
        queues = {f"{self._base}queue:{sender}>{address}": sender for sender in senders}
        streams: dict[Any, Any] = dict.fromkeys(queues, "0")
        if log is not None:
            relation, after = log
            streams[f"{self._base}log:{relation}"] = f"{after}-1"
        block = round(wait_s * 1000) or None
        streams_read = await reply_of(self._redis.xread(streams, count=_FRAMES, block=block))
        return [
            Frame(queues[key.decode()], identity.decode(), _MESSAGES.validate_json(fields[b"m"]))
            for key, entries in streams_read
            if key.decode() in queues
            for identity, fields in entries
        ]

    async def waiting(self, address: str, receivers: Sequence[str]) -> int:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for receiver in receivers:
                pipeline.xlen(f"{self._base}queue:{address}>{receiver}")
            return int(max(await reply_of(pipeline.execute())))

    async def commit(self, commit: Commit) -> None:
        frames = list(_frame(commit.outbox))
        changed = {name: value for name, value in commit.changed.items() if value is not None}
        removed = commit.changed.keys() - changed.keys()
        arguments: list[Any] = [self._id, commit.address, commit.step]
        arguments += [len(commit.taken), *_flatten(commit.taken.items())]
        arguments += [len(frames), *_flatten(frames)]
        arguments += [len(changed), *_flatten(changed.items())]
        arguments += [len(removed), *removed]
        arguments += [1, orjson.dumps(commit.results)] if commit.results else [0]
        reply = await reply_of(self._commit(keys=[self._base], args=arguments))
        if reply < 0:
            raise ClusterGone
        if not reply:
            raise TakenOver(commit.address)

    async def request(self, message: Message) -> None:
        queue = f"{self._base}queue:{OPERATOR}>{MANAGER}"
        await reply_of(self._redis.xadd(queue, {"m": _MESSAGES.dump_json([message])}))

    async def results(self, after: str, limit: int) -> list[tuple[str, list[dict[str, Any]]]]:
        entries = await reply_of(
            self._redis.xrange(f"{self._base}results", f"({after}", "+", limit)
        )
        return [(identity.decode(), orjson.loads(fields[b"r"])) for identity, fields in entries]


class RedisClusters:
    """Implements `mediator.relocation.port.Clusters` in one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def names(self) -> list[str]:
        names = sorted(name.decode() for name in await reply_of(self._redis.smembers(_NAMES)))
        async with self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.exists(f"{_base(name)}layout")
            counts = await reply_of(pipeline.execute())
        return [name for name, count in zip(names, counts, strict=True) if count]

    def of(self, name: str) -> RedisClusterStore:
        return RedisClusterStore(self._redis, name)

    async def drop(self, name: str, addresses: Sequence[str], relations: Sequence[str]) -> None:
        base = _base(name)
        keys = [f"{base}{key}" for key in ("layout", "id", "logs", "results")]
        keys += [f"{base}log:{relation}" for relation in relations]
        keys += [f"{base}record:{address}" for address in addresses]
        senders = [*addresses, OPERATOR]
        keys += [f"{base}queue:{sender}>{address}" for sender in senders for address in addresses]
        for start in range(0, len(keys), _UNLINK_BATCH):
            await reply_of(self._redis.unlink(*keys[start : start + _UNLINK_BATCH]))
        await reply_of(self._redis.srem(_NAMES, name))


def _base(name: str) -> str:
    return f"{{portolan:cluster:{name}}}:"


def _entry(identity: bytes, fields: Mapping[bytes, bytes]) -> LogEntry:
    number, _, _ = identity.partition(b"-")
    values = orjson.loads(fields[b"v"]) if fields[b"v"] else None
    return LogEntry(int(number), float(fields[b"t"]), values, float(fields[b"l"]))


def _frame(outbox: Iterable[tuple[str, Message]]) -> Iterable[tuple[str, bytes]]:
    """Put messages into frames, in the order of each receiver's messages."""
    ordered = sorted(outbox, key=lambda item: item[0])
    for receiver, group in groupby(ordered, key=lambda item: item[0]):
        messages = [message for _, message in group]
        for start in range(0, len(messages), _FRAME_MESSAGES):
            yield receiver, _MESSAGES.dump_json(messages[start : start + _FRAME_MESSAGES])


def _flatten(pairs: Iterable[tuple[Any, Any]]) -> Iterable[Any]:
    return (element for pair in pairs for element in pair)
