"""Metrics that replicas exchange in Redis, so that all score alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import uuid4

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from mediator.base.clock import StabilityTimer, SystemClock

__all__ = ["MetricsExchange", "NoExchange", "RedisExchange"]

KEY = "portolan:metrics"
STALE_S = 60.0
"""A replica that has published nothing new for so long is taken to be gone."""


class MetricsExchange(Protocol):
    """Where replicas publish their metrics."""

    async def publish(self, replica: str, snapshot: dict[str, Any]) -> None:
        """Publish what this replica measured; failing to is no error."""

    async def others(self, replica: str) -> list[dict[str, Any]]:
        """Return what the others published lately, with `age_s`: for how long it is known here."""

    async def close(self) -> None:
        """Release every connection."""


class NoExchange:
    """For a replica that is alone."""

    async def publish(self, replica: str, snapshot: dict[str, Any]) -> None:
        """Do nothing."""

    async def others(self, replica: str) -> list[dict[str, Any]]:  # noqa: ARG002 - the port's shape
        """Return nothing."""
        return []

    async def close(self) -> None:
        """Do nothing."""


class RedisExchange:
    """One hash with a field for each replica.

    Args:
        url: The Redis.
        key: The hash; each kind of metrics has its own.
    """

    def __init__(self, url: str, key: str = KEY) -> None:
        self._key = key
        self._clock = SystemClock()
        self._entries: StabilityTimer[str] = StabilityTimer(self._clock)
        self._redis = Redis.from_url(
            url, decode_responses=True, socket_timeout=1.0, socket_connect_timeout=1.0
        )

    async def publish(self, replica: str, snapshot: dict[str, Any]) -> None:
        """Publish what this replica measured."""
        entry = orjson.dumps({"id": uuid4().hex, "snapshot": snapshot})
        try:
            await self._redis.hset(self._key, replica, entry)
        except (RedisError, OSError):
            return

    async def others(self, replica: str) -> list[dict[str, Any]]:
        """Return what the other replicas published lately, and remove those that are gone.

        `age_s` is for how many seconds nothing newer was published, by this replica's clock alone.
        """
        asked_at = self._clock.monotonic()
        try:
            stored = await self._redis.hgetall(self._key)
            entries = {str(name): str(text) for name, text in stored.items()}
            return await self._fresh(entries, asked_at, replica)
        except (RedisError, OSError):
            return []

    async def close(self) -> None:
        """Release every connection."""
        await self._redis.aclose()

    async def _fresh(
        self, stored: Mapping[str, str], asked_at: float, replica: str
    ) -> list[dict[str, Any]]:
        silent_s = {
            name: self._entries.observe(name, text, asked_at) for name, text in stored.items()
        }
        gone = [name for name, seconds in silent_s.items() if seconds > STALE_S]
        self._entries.retain(stored.keys() - set(gone))
        if gone:
            await self._redis.hdel(self._key, *gone)
        kept = sorted(set(stored) - set(gone) - {replica})
        snapshots = {name: orjson.loads(stored[name])["snapshot"] for name in kept}
        return [{**snapshots[name], "age_s": silent_s[name]} for name in kept]
