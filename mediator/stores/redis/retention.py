"""Retention of the outboxes: relayed entries are removed in batches."""

from __future__ import annotations

from typing import Any, Final

from mediator.stores.outboxes import parse_position
from mediator.stores.redis.client import CommandClient
from redis_connection.commands import command

__all__ = ["TRIM_BATCH", "trim_stream"]

TRIM_BATCH: Final = 10_000
_MAX_TRIM_BATCHES: Final = 20


async def trim_stream(client: CommandClient, key: str, upto: str, keep_s: float) -> int:
    """Remove entries up to a position, a bounded number, but none younger than `keep_s`.

    Complete nodes of the stream are removed first, in batches, because trimming blocks the server.
    """
    ((seconds, _),) = await client.execute([command("TIME")])
    cutoff = (max(0, int((int(seconds) - keep_s) * 1000)), 0)
    milliseconds, sequence = parse_position(upto)
    # MINID keeps the entry at its id, so the id after `upto` is passed.
    min_id = "{}-{}".format(*min(cutoff, (milliseconds, sequence + 1)))
    removed = 0
    for _ in range(_MAX_TRIM_BATCHES):
        count = await _trim(client, key, "~", min_id, "LIMIT", TRIM_BATCH)
        removed += count
        if not count:
            # Only complete nodes were removed so far; this trims within the first remaining one.
            return removed + await _trim(client, key, "=", min_id)
    return removed


async def _trim(client: CommandClient, key: str, *arguments: Any) -> int:
    (removed,) = await client.execute([command("XTRIM", key, "MINID", *arguments)], writes=True)
    return int(removed)
