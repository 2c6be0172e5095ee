"""What replicas measured, told to one another, so that all score alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

__all__ = ["MetricsExchange", "NoExchange", "RedisExchange"]

KEY = "portolan:metrics"
STALE_S = 60.0
"""A replica that has told nothing new for so long is taken to be gone."""


class MetricsExchange(Protocol):
    """Where replicas publish their metrics."""

    async def publish(self, replica: str, snapshot: dict[str, Any]) -> None:
        """Tell what this replica measured; failing to is no error."""

    async def others(self, replica: str) -> list[dict[str, Any]]:
        """Return what the others told lately, with `age_s`: for how long it is known here."""

    async def close(self) -> None:
        """Release every connection."""


class NoExchange:
    """For a replica that is alone."""

    async def publish(self, replica: str, snapshot: dict[str, Any]) -> None:
        """Tell nobody."""

    async def others(self, replica: str) -> list[dict[str, Any]]:  # noqa: ARG002 - the port's shape
        """Hear nothing."""
        return []

    async def close(self) -> None:
        """Do nothing."""


class RedisExchange:
    """One hash with a field for each replica.

    Args:
        url: The Redis.
        key: The hash; what is told of one thing has nothing to do with what is told of others.
    """

    def __init__(self, url: str, key: str = KEY) -> None:
        self._key = key
        self._published = 0
        self._first_seen: dict[str, tuple[Any, float]] = {}
        self._redis = Redis.from_url(
            url, decode_responses=True, socket_timeout=1.0, socket_connect_timeout=1.0
        )

    async def publish(self, replica: str, snapshot: dict[str, Any]) -> None:
        """Tell what this replica measured."""
        self._published += 1
        entry = orjson.dumps({"number": self._published, "snapshot": snapshot})
        try:
            await self._redis.hset(self._key, replica, entry)
        except (RedisError, OSError):
            return

    async def others(self, replica: str) -> list[dict[str, Any]]:
        """Return what the other replicas told lately, and forget those that are gone.

        What each told last is numbered; `age_s` is for how many seconds the number has not changed,
        by the clock of this replica alone.
        """
        try:
            stored = await self._redis.hgetall(self._key)
            return await self._lively({str(k): orjson.loads(v) for k, v in stored.items()}, replica)
        except (RedisError, OSError):
            return []

    async def close(self) -> None:
        """Release every connection."""
        await self._redis.aclose()

    async def _lively(self, entries: dict[str, Any], replica: str) -> list[dict[str, Any]]:
        ages = self._ages({name: entry["number"] for name, entry in entries.items()})
        gone = [name for name, age_s in ages.items() if age_s > STALE_S]
        if gone:
            await self._redis.hdel(self._key, *gone)
        kept = sorted(set(entries) - set(gone) - {replica})
        return [{**entries[name]["snapshot"], "age_s": ages[name]} for name in kept]

    def _ages(self, numbers: Mapping[str, int]) -> dict[str, float]:
        """Tell for how long each number is known here; replicas that are gone are forgotten."""
        now, before = time.monotonic(), self._first_seen
        self._first_seen = {
            name: before[name] if before.get(name, (None,))[0] == number else (number, now)
            for name, number in numbers.items()
        }
        return {name: now - seen for name, (_, seen) in self._first_seen.items()}
