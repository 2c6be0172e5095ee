"""Contention: reads that were refused for pending writes, as the sketch's Redis publishes them.

The script publishes the key on a channel that is named like the partition's `pending`. A lost
message only delays a read.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from sketch.protocol.port import OnContention, Partition
from sketch.redis.names import partition_of

__all__ = ["RedisContention"]

QUIET_S: Final = 10.0
"""After this time without a message the server is pinged: the connection may be dead."""

_RECONNECT_S: Final = 1.0

_log = logging.getLogger("portolan.coherence")


class RedisContention:
    """Listens on a separate connection."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._before, self._after = f"{{{namespace}:", "}:pending"

    async def listen(self, on_contention: OnContention) -> None:
        """Notify of keys, until cancelled; reconnect a moment after the connection is lost."""
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await pubsub.psubscribe(f"{literal(self._before)}*{self._after}")
                    await self._receive(pubsub, on_contention)
            except (RedisError, OSError) as error:
                _log.debug("contention is not received: %s", error)
            await asyncio.sleep(_RECONNECT_S)

    async def _receive(self, pubsub: PubSub, on_contention: OnContention) -> None:
        """Notify of keys, until the server does not answer a ping."""
        pinged = False
        while True:
            message = await pubsub.get_message(timeout=QUIET_S)
            if message is None and pinged:
                return
            if pinged := message is None:
                await pubsub.ping()
            elif message["type"] == "pmessage":
                key = message["data"].decode("utf-8", "replace")
                await on_contention(self._partition(message["channel"]), key)

    def _partition(self, channel: bytes) -> Partition:
        return partition_of(channel.decode().removeprefix(self._before).removesuffix(self._after))


def literal(text: str) -> str:
    """Return a pattern that matches only this text."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
