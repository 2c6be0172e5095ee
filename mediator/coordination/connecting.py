"""Connections to the coordination Redis."""

from __future__ import annotations

from typing import Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

__all__ = ["connect"]

TIMEOUT_S: Final = 3.0
"""Longest wait for an answer; longer than any call of ours blocks on purpose."""


def connect(url: str) -> Redis:
    """Return a client with a pool of connections, which are made when they are needed.

    A call is tried a second time on a fresh connection, as an idle one may have died.
    """
    return Redis.from_url(
        url,
        decode_responses=False,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 1),
    )
