"""Metrics that replicas exchange in Redis, so that all compute the same scores."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import uuid4

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from mediator.base.clock import StabilityTimer, SystemClock

__all__ = ["MetricsExchange"]

KEY = "portolan:metrics"
STALE_S = 60.0
"""Seconds without a new entry after which a replica is taken to be gone."""


class MetricsExchange:
    """One hash of a Redis, with a field for each replica; without a Redis, a replica is alone.

    Each kind of metrics has its own hash. While Redis does not answer, nothing is exchanged.
    """

    def __init__(self, url: str | None = None, key: str = KEY) -> None:
        self._key = key
        self._clock = SystemClock()
        self._entries = StabilityTimer(self._clock)
        self._redis: Redis | None = None
        if url is not None:
            self._redis = Redis.from_url(
                url, decode_responses=True, socket_timeout=1.0, socket_connect_timeout=1.0
            )

    async def publish(self, replica: str, snapshot: dict[str, Any]) -> None:
        if self._redis is None:
            return
        # The id makes equal snapshots differ: a replica without a new entry has stopped.
        entry = orjson.dumps({"id": uuid4().hex, "snapshot": snapshot})
        with suppress(RedisError, OSError):
            await self._redis.hset(self._key, replica, entry)

    async def leave(self, replica: str) -> None:
        """Remove the metrics of a replica that ends; the others serve its load."""
        if self._redis is not None:
            with suppress(RedisError, OSError):
                await self._redis.hdel(self._key, replica)

    async def peers(self, replica: str) -> list[dict[str, Any]]:
        """Return the recent metrics of the other replicas, and remove replicas that are gone.

        `age_s` is the time since the last new entry, by this replica's clock alone.
        """
        if self._redis is None:
            return []
        requested_at = self._clock.monotonic()
        try:
            entries = await self._redis.hgetall(self._key)
            stored = {str(name): str(text) for name, text in entries.items()}
            observe = self._entries.observe
            silent_s = {name: observe(name, text, requested_at) for name, text in stored.items()}
            gone = {name for name, seconds in silent_s.items() if seconds > STALE_S}
            self._entries.retain(stored.keys() - gone)
            if gone:
                await self._redis.hdel(self._key, *gone)
        except (RedisError, OSError):
            return []
        return [
            {**orjson.loads(stored[name])["snapshot"], "age_s": silent_s[name]}
            for name in sorted(stored.keys() - gone - {replica})
        ]

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()
