"""The feed's Lua scripts."""

from __future__ import annotations

from typing import Final

from mediator.changes.feed import PARTITIONS
from redis_connection.scripts import Script, lua_text

__all__ = ["TICKS", "feed_key", "script_of"]

TICKS: Final = "portolan:feed:ticks"
"""The key of the counter from which all feeds of an installation take their ticks."""

SKIPPED: Final = 3_600_000_000
"""Numbers skipped where another server goes on, and microseconds in the ids of streams: more than
it can have lost."""

VERSIONS_KEPT_S: Final = 900
"""Seconds for which the version of an acknowledged change is known at least."""

RETIRED_KEPT_S: Final = 86_400
"""Seconds for which it is known at least how often a replica had appended when it was retired."""


def feed_key(database: str, what: str | int) -> str:
    """Return a key of a database; all of them are on one node of a cluster."""
    return f"{{portolan:feed:{database}}}:{what}"


def script_of(name: str) -> Script:
    numbers = f"{VERSIONS_KEPT_S}, {RETIRED_KEPT_S}, {SKIPPED}, {PARTITIONS}"
    constants = f"local VERSIONS_KEPT_S, RETIRED_KEPT_S, SKIPPED, PARTITIONS = {numbers}"
    return Script("\n".join((constants, lua_text(__name__, "common"), lua_text(__name__, name))))
