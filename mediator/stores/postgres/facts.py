"""What a PostgreSQL server says of itself: version, durability, replicas."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from mediator.stores.port import ServerFacts

__all__ = ["observe"]

_SETTINGS: Final = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
_QUERY: Final = """
SELECT name, current_setting(name) FROM unnest($1::text[]) AS name
UNION ALL SELECT 'wal_writer_delay_ms', setting FROM pg_settings WHERE name = 'wal_writer_delay'
"""
_REPLICAS: Final = "SELECT count(*) FROM pg_stat_replication"
_MAY_SEE: Final = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"


async def observe(connection: Any) -> ServerFacts:
    """Ask a connection as the store uses it, so that its own settings count."""
    details = dict(await connection.fetch(_QUERY, list(_SETTINGS)))
    return ServerFacts(
        server="PostgreSQL",
        version=details["server_version"],
        durability_s=_durability_s(details),
        replicas=await _replicas(connection),
        details=details,
    )


def _durability_s(details: dict[str, str]) -> float | None:
    """Seconds of acknowledged writes that a crash may lose (PostgreSQL manual, 28.4)."""
    if details["fsync"] != "on":
        return None
    if details["synchronous_commit"] != "off":
        return 0.0
    return 3 * float(details["wal_writer_delay_ms"]) / 1000


async def _replicas(connection: Any) -> int | None:
    # Without the role the rows are there, yet all but empty, or hidden: count nothing then.
    try:
        if not await connection.fetchval(_MAY_SEE):
            return None
        return int(await connection.fetchval(_REPLICAS))
    except asyncpg.InsufficientPrivilegeError:
        return None
