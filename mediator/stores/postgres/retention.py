"""Retention: removes old tombstones and operations, and excess changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from mediator.stores.port import RETENTION_S
from mediator.stores.postgres.sql import quoted

__all__ = ["MAX_CHANGES", "reap"]

MAX_CHANGES: Final = 1_000_000
"""About how many changes are kept at most, relayed or not. The relay trims relayed changes."""

_TABLES: Final = 'SELECT "table" FROM {classes}'
# Locked rows are skipped: a concurrent write creates the record.
_TOMBSTONES: Final = """
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table} WHERE _deleted < $1 AND _intent IS NULL ORDER BY _deleted LIMIT $2
    FOR UPDATE SKIP LOCKED))
"""
_DATED: Final = """
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table} WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED))
"""
# Reads only the oldest rows, so that a reap with nothing to do is cheap.
_CHANGES: Final = """
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM (SELECT ctid, seq FROM {table} ORDER BY xid, seq LIMIT $1) oldest
    WHERE seq <= (SELECT seq FROM {table} ORDER BY xid DESC, seq DESC LIMIT 1) - $2))
"""


async def reap(connection: Any, namespace: str, now_s: float, limit: int) -> int:
    """Remove up to `limit` rows, by the server's clock; return how many."""
    cutoff = datetime.fromtimestamp(now_s - RETENTION_S, UTC)
    classes = quoted(namespace, "_classes")
    names = [name for (name,) in await connection.fetch(_TABLES.format(classes=classes))]
    work = [("_operations", _DATED), *((name, _TOMBSTONES) for name in names)]
    removed = 0
    for name, statement in [*work, ("_outbox", _CHANGES)]:
        if removed < limit:
            sql, remaining = statement.format(table=quoted(namespace, name)), limit - removed
            bounds = (remaining, MAX_CHANGES) if statement is _CHANGES else (cutoff, remaining)
            tag = await connection.execute(sql, *bounds)
            removed += int(tag.removeprefix("DELETE "))
    return removed
