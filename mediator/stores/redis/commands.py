"""Commands as the bytes that are sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hiredis

from mediator.stores.redis.lua import Script

__all__ = ["call_of", "command", "words"]


def command(*words: Any) -> bytes:
    """Pack a command of texts, bytes and numbers."""
    packed: bytes = hiredis.pack_command(words)
    return packed


def words(*texts: Any) -> bytes:
    """Pack some words of a command, to be put together: constant ones are packed once."""
    packed: bytes = hiredis.pack_command(texts)
    return packed[packed.index(b"\n") + 1 :]


def call_of(script: Script, keys: Iterable[str], arguments: Iterable[Any]) -> bytes:
    """Pack the call of a script."""
    named = tuple(keys)
    return command("EVALSHA", script.sha, len(named), *named, *arguments)
