"""The logs, queues and records of clusters in Redis; all keys of a cluster share one hash tag.

| key | what it holds |
|---|---|
| `{portolan:cluster:<name>}:layout` | what all participants agree on |
| `…:log:<relation>` | stream: tuples by number, of what windows still reach |
| `…:logs` | hash: the last number and the latest time of each log |
| `…:queue:<sender>><receiver>` | stream: frames of messages that have not been taken |
| `…:record:<address>` | hash: what a participant has committed, and in how many steps |
| `…:results` | stream: what workers have emitted, by step |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import orjson
from pydantic import TypeAdapter
from redis.asyncio import Redis

from mediator.base.errors import TooManyRequests
from mediator.coordination.errors import reply_of
from mediator.relocation.messages import MANAGER, OPERATOR, Message
from mediator.relocation.port import Commit, Frame, Recorded, TakenOver
from mediator.relocation.split import LogEntry
from redis_connection.scripts import lua_text

__all__ = ["RedisClusterStore"]

MOST_LOGGED: Final = 1_000_000
"""Entries of a log."""

MOST_RESULTS: Final = 100_000
"""Steps whose results are kept."""

_FRAME: Final = 500
"""Messages that are sent, and so taken, as one."""

_FRAMES: Final = 8
"""That a participant takes from each queue at once."""

_TRIMMED: Final = 1_000
"""Entries of a log that are looked at in order to drop them."""

_MESSAGES: Final[TypeAdapter[list[Message]]] = TypeAdapter(list[Message])
_CONSTANTS: Final = f"local MOST_LOGGED, MOST_RESULTS = {MOST_LOGGED}, {MOST_RESULTS}\n"


class RedisClusterStore:
    """Implements `mediator.relocation.port.ClusterStore` in one Redis."""

    def __init__(self, redis: Redis, name: str) -> None:
        self._redis = redis
        self._base = f"{{portolan:cluster:{name}}}:"
        self._commit = redis.register_script(_script("cluster_commit"))
        self._append = redis.register_script(_script("cluster_append"))

    async def declare(self, layout: Any) -> bool:
        """Write down what all agree on; false if there is such a cluster already."""
        key = f"{self._base}layout"
        return bool(await reply_of(self._redis.set(key, orjson.dumps(layout), nx=True)))

    async def layout(self) -> Any:
        """Return what was declared; None: nothing was."""
        text = await reply_of(self._redis.get(f"{self._base}layout"))
        return None if text is None else orjson.loads(text)

    async def append(
        self, relation: str, tuples: Sequence[tuple[float, Mapping[str, Any] | None]]
    ) -> None:
        rows = [
            text
            for time_s, values in tuples
            for text in (repr(time_s), b"" if values is None else orjson.dumps(values))
        ]
        if await reply_of(self._append(keys=[self._base], args=[relation, *rows])) < 0:
            raise TooManyRequests(f"The log of {relation} is full: workers are too far behind.")

    async def log(self, relation: str, after: int, limit: int) -> list[LogEntry]:
        key = f"{self._base}log:{relation}"
        found = await reply_of(self._redis.xrange(key, f"({after}-1", "+", limit))
        return [_entry(identity, fields) for identity, fields in found]

    async def trim(self, relation: str, before_s: float) -> None:
        head = await self.log(relation, 0, _TRIMMED)
        kept = (each for each in head if each.time_s >= before_s)
        first = next(kept, head[-1] if head else None)
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
            found = await reply_of(pipeline.execute())
        return [None if text is None else orjson.loads(text) for text in found]

    async def frames(
        self, address: str, senders: Sequence[str], log: tuple[str, int] | None, wait_s: float
    ) -> list[Frame]:
        queues = {f"{self._base}queue:{sender}>{address}": sender for sender in senders}
        streams: dict[Any, Any] = dict.fromkeys(queues, "0")
        if log is not None:
            relation, after = log
            streams[f"{self._base}log:{relation}"] = f"{after}-1"
        block = round(wait_s * 1000) or None
        found = await reply_of(self._redis.xread(streams, count=_FRAMES, block=block))
        return [
            Frame(queues[key.decode()], identity.decode(), _MESSAGES.validate_json(fields[b"m"]))
            for key, entries in found
            if key.decode() in queues
            for identity, fields in entries
        ]

    async def waiting(self, address: str, receivers: Sequence[str]) -> int:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for receiver in receivers:
                pipeline.xlen(f"{self._base}queue:{address}>{receiver}")
            return int(max(await reply_of(pipeline.execute())))

    async def commit(self, commit: Commit) -> None:
        frames = list(_framed(commit.outbox))
        changed = {name: each for name, each in commit.changed.items() if each is not None}
        removed = commit.changed.keys() - changed.keys()
        arguments: list[Any] = [commit.address, commit.step]
        arguments += [len(commit.taken), *_flat(commit.taken.items())]
        arguments += [len(frames), *_flat(frames)]
        arguments += [len(changed), *_flat(changed.items())]
        arguments += [len(removed), *removed]
        arguments += [1, orjson.dumps(commit.results)] if commit.results else [0]
        if not await reply_of(self._commit(keys=[self._base], args=arguments)):
            raise TakenOver(commit.address)

    async def request(self, message: Message) -> None:
        queue = f"{self._base}queue:{OPERATOR}>{MANAGER}"
        await reply_of(self._redis.xadd(queue, {"m": _MESSAGES.dump_json([message])}))

    async def results(self, after: str, limit: int) -> list[tuple[str, list[dict[str, Any]]]]:
        found = await reply_of(self._redis.xrange(f"{self._base}results", f"({after}", "+", limit))
        return [(identity.decode(), orjson.loads(fields[b"r"])) for identity, fields in found]


def _script(name: str) -> str:
    return _CONSTANTS + lua_text("mediator.coordination.scripts", name)


def _entry(identity: bytes, fields: Mapping[bytes, bytes]) -> LogEntry:
    number, _, _ = identity.partition(b"-")
    values = orjson.loads(fields[b"v"]) if fields[b"v"] else None
    return LogEntry(int(number), float(fields[b"t"]), values, float(fields[b"l"]))


def _framed(outbox: Iterable[tuple[str, Message]]) -> Iterable[tuple[str, bytes]]:
    """Put messages into frames; the order of each receiver's is kept."""
    ordered = sorted(outbox, key=lambda each: each[0])
    for receiver, group in groupby(ordered, key=lambda each: each[0]):
        messages = [message for _, message in group]
        for start in range(0, len(messages), _FRAME):
            yield receiver, _MESSAGES.dump_json(messages[start : start + _FRAME])


def _flat(pairs: Iterable[tuple[Any, Any]]) -> Iterable[Any]:
    return (each for pair in pairs for each in pair)
