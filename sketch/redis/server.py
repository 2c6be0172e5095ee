"""The server's sketch in Redis 6.2 or newer, or Valkey.

All keys of a part share the hash tag ``{<namespace>:<database>/<class>}``, and each call of the
script touches the keys of one part only, so parts may lie on different nodes of a cluster. What
callers ask for at the same time travels in one round trip, and what concerns one part in one call
of the script. The clock is the server's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any, Final
from urllib.parse import quote

from redis.asyncio import Redis

from sketch.filter.bloom import FilterShape
from sketch.filter.hashing import positions
from sketch.protocol.bounds import by_part, checked, checked_keys, known_versions
from sketch.protocol.port import (
    Begun,
    Changes,
    Ended,
    Grant,
    Part,
    PendingWrite,
    Purge,
    Registered,
    SketchLimits,
    SketchUnavailable,
    Snapshot,
    TellWanted,
)
from sketch.protocol.states import PartState
from sketch.protocol.times import granted_us
from sketch.protocol.union import NO_INCARNATION, full_bits, united
from sketch.redis.contention import RedisWanted
from sketch.redis.queries import ENDS, RedisQueries
from sketch.redis.script_client import Channel, ScriptCall, connect, words
from sketch.redis.scripts import source_of
from sketch.redis.steps import Answer, Steps

__all__ = ["KEYS_OF_A_PART", "RedisSketch"]

KEYS_OF_A_PART: Final = (
    "meta",
    "handed",
    "stale",
    "members",
    "counts",
    "bits",
    "marks",
    "writes",
    "leases",
    "versions",
    "purges",
    "owed",
    "queries",
)
_STEPS: Final = 2
"""Part of every life. Grows when steps of an older version would break what newer ones promise, so
that replicas of both begin parts anew instead of relying on one another."""

_TIMEOUT_S: Final = 3.0
_MOST_BITS: Final = 2**27
"""Four bytes for each bit's count must fit in one string of Redis."""
_BITS_REMEMBERED: Final = 256
_EXPIRED_BY_SNAPSHOTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Bits:
    incarnation: bytes
    generation: int
    bits: bytes


class RedisSketch:
    """See `sketch.protocol.port.ServerSketch` and `PurgeQueue`.

    Args:
        redis: Its address, or a client whose settings are used for a connection of our own.
        limits: What is promised and held; all replicas should say the same.
        shape: Of the filters; parts that were of another shape are begun anew.
        namespace: What the names of all keys begin with.
        timeout_s: Longest wait for an answer.

    Raises:
        ValueError: The namespace has a brace, or the filter has more than 2^27 bits.
    """

    kept_in = "redis"

    def __init__(
        self,
        redis: Redis | str,
        limits: SketchLimits,
        shape: FilterShape,
        namespace: str = "portolan:sketch",
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        if re.search("[{}]", namespace):
            raise ValueError("The namespace of the sketch must have no brace.")
        if shape.bits > _MOST_BITS:
            raise ValueError(f"A filter in Redis has at most {_MOST_BITS} bits.")
        self.limits = limits
        self.shape = shape
        self._own = connect(redis, timeout_s) if isinstance(redis, str) else None
        client = self._own or redis
        assert isinstance(client, Redis)
        mark = f"{shape.bits}.{shape.hashes}.{shape.seed}.{_STEPS}"
        self._channel = Channel(client, self._script(), mark, timeout_s)
        self._keys_of = lru_cache(maxsize=4096)(_Names(namespace))
        self._steps = Steps(self._channel, self._keys_of, limits.expired_at_once)
        self._places = Struct(f">{shape.hashes}I")
        self._queries = RedisQueries(self._steps, shape)
        self._wanted = RedisWanted(client, namespace)
        self._bits: dict[Part, _Bits] = {}

    def _script(self) -> str:
        return source_of(self.limits, self.shape)

    async def create(self, part: Part) -> None:
        """Begin a part that has never been: nothing of it is in any cache.

        A part that is not there otherwise counts as lost. Does nothing to one that is there.
        """
        call = ScriptCall(self._keys_of(part), 0, standing="fresh")
        (answer,) = await self._channel.ask([call])
        if isinstance(answer, Exception):
            raise SketchUnavailable("The sketch refused.") from answer

    async def renew(self, part: Part) -> None:
        """See the port."""
        await self._steps.take(part, "renew", ())

    async def layout(self, part: Part) -> str:
        """See the port."""
        answer = await self._steps.take(part, "layout", ())
        return bytes(answer.value).decode()

    async def adopt(
        self, part: Part, before: str, after: str, *, anew: bool = False, schema: str = ""
    ) -> bool:
        """See the port."""
        words = (before, after, int(anew), schema)
        return bool((await self._steps.take(part, "adopt", words)).value)

    async def begin(self, part: Part, keys: Sequence[str], token: str) -> Begun:
        """See the port."""
        words: list[Any] = [checked(token)]
        for key in (own := checked_keys(keys)):
            words += (key, self._places.pack(*positions(key, self.shape)))
        answer = await self._steps.take(part, "begin", words, len(own))
        *flags, mark, lingers = answer.value
        held = [key for key, is_held in zip(own, flags, strict=True) if is_held]
        return Begun(tuple(dict.fromkeys(held)), mark, bool(lingers) and not held)

    async def end(
        self, part: Part, token: str, versions: Mapping[str, int], changes: Changes | None = None
    ) -> Ended:
        """See the port."""
        words = [checked(token), *_pairs(known_versions(versions))]
        if changes is None:
            answer = await self._steps.take(part, "end", words, len(versions))
            return ENDS[answer.value]
        return await self._queries.close(part, words[0], words[1:], changes)

    async def report_query(self, part: Part, key: str, ttl_s: float, schema: str = "") -> Grant:
        """See the port."""
        return await self._queries.report(part, key, granted_us(self.limits, ttl_s), schema)

    async def registered(self, part: Part, since: int) -> Registered:
        """See the port."""
        return await self._queries.registered(part, since)

    async def changed(self, part: Part, queries: Sequence[str]) -> None:
        """See the port."""
        await self._queries.changed(part, queries)

    async def report_read(self, part: Part, keys: Sequence[str], ttl_s: float) -> Grant:
        """See the port."""
        own = checked_keys(keys)
        words = (granted_us(self.limits, ttl_s) if own else 0, *own)
        answer = await self._steps.take(part, "read", words, len(own))
        ttl_us, *entries = answer.value
        fills = (entry[1:].decode() for entry in entries if entry and entry.startswith(b"f"))
        return Grant(
            answer.now_us,
            ttl_us,
            tuple(map(_version, entries)),
            ",".join(dict.fromkeys(fills)),
        )

    async def fill(self, part: Part, fill: str, versions: Mapping[str, int]) -> None:
        """See the port."""
        if fill and (known := known_versions(versions)):
            await self._steps.take(part, "fill", (fill, *_pairs(known)), len(known))

    async def snapshot(self, parts: Sequence[Part]) -> Snapshot:
        """See the port; no parts have an empty filter."""
        if parts:
            return united(await _all(self._snapshot(part) for part in parts))
        empty = bytes(self.shape.bits // 8)
        return Snapshot(self.shape, empty, await self._channel.time_us(), NO_INCARNATION, 0)

    async def orphans(self, parts: Sequence[Part], limit: int) -> list[PendingWrite]:
        """See the port."""
        answers = await self._of_all(parts, "orphans", limit)
        found = [
            PendingWrite(part, token.decode(), tuple(key.decode() for key in keys))
            for part, answer in zip(parts, answers, strict=True)
            for token, *keys in answer.value
        ]
        return found[:limit]

    async def expire(self, part: Part, most: int = _EXPIRED_BY_SNAPSHOTS) -> int:
        """Remove what has expired, and return how much there was; others do so in passing."""
        return int((await self._steps.take(part, "expire", (most,))).value)

    async def purges(self, parts: Sequence[Part], limit: int) -> list[Purge]:
        """See the port."""
        taken: list[Purge] = []
        queue = list(parts)
        while queue and (left := limit - len(taken)) > 0:
            asked, queue = queue[:left], queue[left:]
            share = left // len(asked)
            answers = await self._of_all(asked, "take", share)
            for part, answer in zip(asked, answers, strict=True):
                taken += (Purge(part, key.decode(), answer.now_us) for key in answer.value)
                if len(answer.value) == share:
                    queue.append(part)
        return taken

    async def purged(self, purges: Sequence[Purge]) -> None:
        """See the port."""
        await _all(
            self._steps.take(part, "purged", [w for p in own for w in (p.key, p.ticket)], len(own))
            for part, own in by_part(purges).items()
        )

    async def states(self, parts: Sequence[Part]) -> list[PartState]:
        """See `sketch.protocol.states.Inspectable`."""
        return await _all(self._state(part) for part in parts)

    async def listen(self, tell: TellWanted) -> None:
        """See the port."""
        await self._wanted.listen(tell)

    async def close(self) -> None:
        """See the port."""
        await self._steps.close()
        self._channel.close()
        if self._own is not None:
            await self._own.aclose()

    async def _snapshot(self, part: Part) -> Snapshot:
        known = self._bits.get(part)
        has = (known.incarnation, known.generation) if known else ("", "")
        answer = await self._steps.take(part, "snapshot", has, _EXPIRED_BY_SNAPSHOTS // 2)
        incarnation, generation, all_stale, bits = answer.value
        if all_stale:
            bits = full_bits(self.shape)
        elif bits is None:
            assert known is not None
            bits = known.bits
        else:
            self._remember(part, _Bits(incarnation, generation, bits))
        return Snapshot(
            self.shape, bits, answer.now_us, incarnation.decode(), generation, bool(all_stale)
        )

    async def _state(self, part: Part) -> PartState:
        answer = await self._steps.take(part, "state", ())
        incarnation, generation, keys, bits, handed, writes, lease, *rest = answer.value
        saturated, uncacheable, purges, due, first_purge, size = rest
        return PartState(
            part,
            answer.now_us,
            incarnation.decode(),
            generation,
            keys,
            bits,
            handed,
            writes,
            _time(lease),
            saturated,
            uncacheable,
            purges,
            due,
            _time(first_purge),
            size,
        )

    def _remember(self, part: Part, bits: _Bits) -> None:
        if len(self._bits) >= _BITS_REMEMBERED:
            self._bits.clear()
        self._bits[part] = bits

    async def _of_all(self, parts: Sequence[Part], name: str, word: int) -> list[Answer]:
        return await _all(self._steps.take(part, name, (word,)) for part in parts)


class _Names:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __call__(self, part: Part) -> bytes:
        database, class_name = (quote(name, safe="") for name in part)
        tag = f"{{{self._namespace}:{database}/{class_name}}}"
        return words(*(f"{tag}:{name}" for name in KEYS_OF_A_PART))


async def _all(calls: Iterable[Any]) -> list[Any]:
    return await asyncio.gather(*calls)


def _pairs(versions: Mapping[str, int]) -> list[Any]:
    return [word for pair in versions.items() for word in pair]


def _time(score: bytes | None) -> int | None:
    return None if score is None else int(float(score))


def _version(entry: bytes | None) -> int | None:
    return int(entry[1:]) if entry and entry.startswith(b"v") else None
