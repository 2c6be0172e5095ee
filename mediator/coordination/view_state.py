"""The states of views in Redis, beside the feed of their database: same hash tag, same server.

So they fall back together with the feed if the server does, and a cursor never points beyond what
the feed has lost.

| key | what it holds |
|---|---|
| `{portolan:feed:<database>}:view` | hash: `cursor/<partition>`, and the state of each copy by \
`<partition>/<copy>` |
| `…:told` | hash: JSON documents for operators |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from mediator.base.lease import Lease
from mediator.changes.feed import LeaseLost
from mediator.changes.partitions import PARTITIONS
from mediator.coordination.failures import unavailable
from mediator.coordination.scripts import TICKS, script_of
from mediator.materialisation.state import CopyState, PartitionState, Step
from mediator.materialisation.watermarks import Location, Marks

__all__ = ["RedisViewState"]

_CURSOR: Final = "cursor"
_LEASE_LOST: Final = -1


class RedisViewState:
    """The states of all views in one Redis: `mediator.materialisation.state.ViewState`."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._advance = redis.register_script(script_of("advance").text)
        self._marks = redis.register_script(script_of("marks").text)

    async def load(self, database: str, partition: int) -> PartitionState:
        """Return what is known of a partition."""
        states = _decoded(await self._ask(self._redis.hgetall(_key(database, "view"))))
        prefix = f"{partition}/"
        copies = {
            name.removeprefix(prefix): _state(text)
            for name, text in states.items()
            if name.startswith(prefix)
        }
        return PartitionState(states.get(f"{_CURSOR}/{partition}"), copies)

    async def advance(
        self,
        database: str,
        partition: int,
        cursor: tuple[str | None, str],
        steps: Sequence[Step],
        lease: Lease,
    ) -> None:
        """Move the cursor, and take those steps that begin at the present states."""
        before, after = cursor
        args: list[Any] = [lease.token, partition, before or "", after]
        for step in steps:
            args += (step.copy, _text(step.before), _text(step.after))
        keys = [_key(database, ""), lease.key]
        if await self._ask(self._advance(keys=keys, args=args)) == _LEASE_LOST:
            raise LeaseLost

    async def marks(self, database: str) -> Marks:
        """Return up to when each copy of a database is complete, and the tick of now."""
        answer = await self._ask(self._marks(keys=[_key(database, ""), TICKS]))
        tick, told = answer
        states = _decoded(dict(zip(told[::2], told[1::2], strict=True)))
        return Marks(int(tick), _until(database, states))

    async def retract(self, database: str, copies: Collection[str] | None = None) -> None:
        """Forget what is known of copies; None: of the database."""
        key = _key(database, "view")
        if copies is None:
            await self._ask(self._redis.delete(key, _key(database, "told")))
        elif copies:
            fields = [f"{partition}/{copy}" for partition in range(PARTITIONS) for copy in copies]
            await self._ask(self._redis.hdel(key, *fields))

    async def tell(self, database: str, about: str, told: Any) -> None:
        """Leave a JSON document for the operators, on every replica."""
        await self._ask(self._redis.hset(_key(database, "told"), about, orjson.dumps(told)))

    async def told(self, database: str) -> Mapping[str, Any]:
        """Return what was told, by what it is about."""
        told = _decoded(await self._ask(self._redis.hgetall(_key(database, "told"))))
        return {about: orjson.loads(text) for about, text in told.items()}

    async def _ask(self, question: Any) -> Any:
        try:
            return await question
        except (RedisError, OSError) as error:
            raise unavailable() from error


def _key(database: str, what: str) -> str:
    return f"{{portolan:feed:{database}}}:{what}"


def _decoded(answer: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): text.decode() for name, text in answer.items()}


def _text(state: CopyState | None) -> str:
    if state is None:
        return ""
    return orjson.dumps([state.until_tick, state.build, state.stuck]).decode()


def _state(text: str) -> CopyState:
    until_tick, build, stuck = orjson.loads(text)
    return CopyState(until_tick, build, tuple(stuck))


def _until(database: str, states: Mapping[str, str]) -> dict[Location, Sequence[int | None]]:
    known: defaultdict[Location, list[int | None]] = defaultdict(lambda: [None] * PARTITIONS)
    for name, text in _copies(states):
        partition, _, copy = name.partition("/")
        known[database, copy][int(partition)] = _state(text).until_tick
    return dict(known)


def _copies(states: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((name, text) for name, text in states.items() if not name.startswith(_CURSOR))
