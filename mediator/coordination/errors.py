"""Replies of the coordination Redis, and the error if it does not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from mediator.base.errors import Unavailable

__all__ = ["entries_of", "pairs_of", "reply_of", "texts_of", "unavailable"]


async def reply_of(call: Any) -> Any:
    """Return the reply to an untyped call of the driver; raises `Unavailable`."""
    try:
        return await call
    except (RedisError, OSError) as error:
        raise unavailable() from error


def unavailable() -> Unavailable:
    """Return the error without the address, as URLs carry passwords."""
    return Unavailable("The coordination Redis does not answer.", system="coordination")


def texts_of(reply: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): text.decode() for name, text in reply.items()}


def pairs_of(flat: Sequence[bytes]) -> dict[str, str]:
    """Return the hash that a script replied as alternating names and values."""
    texts = [text.decode() for text in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def entries_of(reply: Any) -> list[Any]:
    """Return the entries in a reply to XREAD, which is None if there were none in time."""
    streams = reply.values() if isinstance(reply, dict) else [entries for _, entries in reply or ()]
    return [entry for entries in streams for entry in entries]
