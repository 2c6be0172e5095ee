"""The states of views in Redis, with the feed of their database: same hash tag, same server.

If the server loses its last second, both lose it, so a cursor never points beyond the feed.

| key | content |
|---|---|
| `{portolan:feed:<database>}:view` | hash: `cursor/<partition>`, and the state of each copy by \
`<partition>/<copy>` |
| `…:reports` | hash: JSON documents for operators |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from mediator.base.lease import Lease, LeaseLost
from mediator.changes.feed import PARTITIONS
from mediator.coordination.errors import pairs_of, reply_of, texts_of
from mediator.coordination.scripts import TICKS, feed_key, script_of
from mediator.materialisation.state import (
    CopyKey,
    CopyState,
    CopyStep,
    ViewPartition,
    WatermarkSnapshot,
)

__all__ = ["RedisViewState"]

_CURSOR: Final = "cursor"
_LEASE_LOST: Final = -1


class RedisViewState:
    """Implements `mediator.materialisation.state.ViewState` in one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._advance = redis.register_script(script_of("advance").text)
        self._watermarks = redis.register_script(script_of("watermarks").text)

    async def load(self, database: str, partition: int) -> ViewPartition:
        states = texts_of(await reply_of(self._redis.hgetall(feed_key(database, "view"))))
        prefix = f"{partition}/"
        copies = {
            name.removeprefix(prefix): _state(text)
            for name, text in states.items()
            if name.startswith(prefix)
        }
        return ViewPartition(states.get(f"{_CURSOR}/{partition}"), copies)

    async def advance(
        self,
        database: str,
        partition: int,
        cursor: tuple[str | None, str],
        steps: Sequence[CopyStep],
        lease: Lease,
    ) -> None:
        before, after = cursor
        args: list[Any] = [lease.token, partition, before or "", after]
        for step in steps:
            args += (step.copy, _text(step.before), _text(step.after))
        keys = [feed_key(database, ""), lease.key]
        if await reply_of(self._advance(keys=keys, args=args)) == _LEASE_LOST:
            raise LeaseLost

    async def watermarks(self, database: str) -> WatermarkSnapshot:
        tick, states = await reply_of(self._watermarks(keys=[feed_key(database, ""), TICKS]))
        return WatermarkSnapshot(int(tick), _until(database, pairs_of(states)))

    async def retract(self, database: str, copies: Collection[str] | None = None) -> None:
        key = feed_key(database, "view")
        if copies is None:
            await reply_of(self._redis.delete(key, feed_key(database, "reports")))
        elif copies:
            fields = [f"{partition}/{copy}" for partition in range(PARTITIONS) for copy in copies]
            await reply_of(self._redis.hdel(key, *fields))

    async def publish(self, database: str, subject: str, report: Any) -> None:
        await reply_of(
            self._redis.hset(feed_key(database, "reports"), subject, orjson.dumps(report))
        )

    async def reports(self, database: str) -> Mapping[str, Any]:
        reports = texts_of(await reply_of(self._redis.hgetall(feed_key(database, "reports"))))
        return {subject: orjson.loads(text) for subject, text in reports.items()}


def _text(state: CopyState | None) -> str:
    if state is None:
        return ""
    # Left out if false: replicas of older versions compare the text.
    more = [True] if state.more_stuck else []
    return orjson.dumps([state.until_tick, state.build, state.stuck, *more]).decode()


def _state(text: str) -> CopyState:
    until_tick, build, stuck, *more = orjson.loads(text)
    return CopyState(until_tick, build, tuple(stuck), any(more))


def _until(database: str, states: Mapping[str, str]) -> dict[CopyKey, Sequence[int | None]]:
    ticks: defaultdict[CopyKey, list[int | None]] = defaultdict(lambda: [None] * PARTITIONS)
    for name, text in states.items():
        partition, _, copy = name.partition("/")
        if partition == _CURSOR:
            continue
        ticks[database, copy][int(partition)] = _state(text).until_tick
    return dict(ticks)
