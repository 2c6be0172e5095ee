"""Replies of the coordination Redis by the driver, and the error when it does not answer."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from mediator.base.errors import Unavailable

__all__ = ["reply_of", "unavailable"]


async def reply_of(call: Any) -> Any:
    """Return the reply to an untyped call of the driver; raises `Unavailable`."""
    try:
        return await call
    except (RedisError, OSError) as error:
        raise unavailable() from error


def unavailable() -> Unavailable:
    """Return the error; it names no address, as URLs carry passwords."""
    return Unavailable("The coordination Redis does not answer.", system="coordination")
