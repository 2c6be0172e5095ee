"""Retention of the outboxes: entries that were relayed are removed, some at a time."""

from __future__ import annotations

from typing import Any, Final

from mediator.stores.outboxes import numbers_of
from mediator.stores.redis.client import CommandClient
from redis_connection.commands import command

__all__ = ["TRIMMED_AT_ONCE", "trim_stream"]

TRIMMED_AT_ONCE: Final = 10_000
_MOST_TRIMS: Final = 20


async def trim_stream(client: CommandClient, key: str, upto: str, keep_s: float) -> int:
    """Remove entries up to a position, but none younger than `keep_s`; some of them, if many.

    Whole nodes of the stream go first, not too many at once, for the server waits meanwhile.
    """
    ((seconds, _),) = await client.execute([command("TIME")])
    youngest = (max(0, int((int(seconds) - keep_s) * 1000)), 0)
    milliseconds, sequence = numbers_of(upto)
    # MINID keeps the entry of its position, so it is the one after `upto`.
    first_kept = "{}-{}".format(*min(youngest, (milliseconds, sequence + 1)))
    removed = 0
    for _ in range(_MOST_TRIMS):
        count = await _trim(client, key, "~", first_kept, "LIMIT", TRIMMED_AT_ONCE)
        removed += count
        if not count:
            # Only whole nodes went so far; this trims within the first one that is left.
            return removed + await _trim(client, key, "=", first_kept)
    return removed


async def _trim(client: CommandClient, key: str, *how: Any) -> int:
    (removed,) = await client.execute([command("XTRIM", key, "MINID", *how)], writes=True)
    return int(removed)
