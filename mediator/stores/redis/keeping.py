"""Making a class ready and taking it away, in batches that do not hold the server up."""

from __future__ import annotations

from mediator.stores.redis.commands import call_of, command
from mediator.stores.redis.line import Line
from mediator.stores.redis.lua import DROP, FILL
from mediator.stores.redis.plan import Plan

__all__ = ["drop_class", "fill_indexes"]

BATCH = 200
"""Records that one script handles."""


async def fill_indexes(line: Line, plan: Plan) -> None:
    """Add existing records to indexes that are new, and remove those that are no more."""
    for prefix in plan.prefixes:
        active, filled = await line.ask(
            [
                command("SMEMBERS", f"{prefix}indexed"),
                command("SMEMBERS", f"{prefix}filled"),
            ]
        )
        wanted = {name.encode() for name in plan.indexed}
        await _remove(line, prefix, {*active, *filled} - wanted)
        await _fill(line, prefix, sorted(wanted - set(filled)))


async def _fill(line: Line, prefix: str, names: list[bytes]) -> None:
    if not names:
        return
    # Writes keep up the index from here on; records that were there before are added now.
    await _do(line, "SADD", f"{prefix}indexed", *names)
    last: bytes | None = b""
    while last is not None:
        (last,) = await line.ask([call_of(FILL, (prefix,), (last, BATCH, *names))], writes=True)
    await _do(line, "SADD", f"{prefix}filled", *names)


async def _remove(line: Line, prefix: str, names: set[bytes]) -> None:
    if names:
        await _do(line, "SREM", f"{prefix}indexed", *names)
        await _do(line, "SREM", f"{prefix}filled", *names)
        await _unlink_indexes(line, prefix, names)


async def drop_class(line: Line, plan: Plan) -> None:
    """Remove records, tombstones and indexes; what is remembered of operations is void."""
    for prefix in plan.prefixes:
        await _do(line, "INCR", f"{prefix}generation")
        removed = 1
        while removed:
            (removed,) = await line.ask([call_of(DROP, (prefix,), (BATCH,))], writes=True)
        (active,) = await line.ask([command("SMEMBERS", f"{prefix}indexed")])
        await _unlink_indexes(line, prefix, set(active))
        await _do(line, "UNLINK", f"{prefix}indexed", f"{prefix}filled")


async def _unlink_indexes(line: Line, prefix: str, names: set[bytes]) -> None:
    if names:
        await _do(line, "UNLINK", *(f"{prefix}i.".encode() + name for name in names))


async def _do(line: Line, *words: str | bytes) -> None:
    await line.ask([command(*words)], writes=True)
