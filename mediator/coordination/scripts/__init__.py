"""Lua scripts for the state in the coordination Redis, and the keys of its feeds."""

from __future__ import annotations

from typing import Final

from mediator.changes.feed import PARTITIONS
from redis_connection.scripts import Script, lua_text

__all__ = ["RETRIED_S", "TICKS", "feed_key", "script_of", "text_of"]

RETRIED_S: Final = 60
"""Seconds within which the driver may resend a call after losing the reply."""

TICKS: Final = "portolan:feed:ticks"
"""The key of the counter of ticks for all feeds of an installation."""

SKIPPED: Final = 3_600_000_000
"""Numbers skipped when another server takes over, and microseconds in the ids of streams: more than
it can have lost."""

VERSION_RETENTION_S: Final = 900
"""Minimum seconds for which the version of an acknowledged change is kept."""

RETIRED_RETENTION_S: Final = 86_400
"""Minimum seconds for which the append count of a retired replica is kept."""


def feed_key(database: str, key: str | int) -> str:
    """Return a key of a database; all its keys are on one node of a cluster."""
    return f"{{portolan:feed:{database}}}:{key}"


def text_of(*names: str, **constants: object) -> str:
    """Return a script of constants and Lua files of this package."""
    locals_ = (f"local {name} = {value}" for name, value in constants.items())
    return "\n".join((*locals_, *(lua_text(__name__, name) for name in names)))


def script_of(name: str) -> Script:
    """Return a script of the feed."""
    constants = {
        "VERSION_RETENTION_S": VERSION_RETENTION_S,
        "RETIRED_RETENTION_S": RETIRED_RETENTION_S,
        "SKIPPED": SKIPPED,
        "PARTITIONS": PARTITIONS,
    }
    return Script(text_of("common", name, **constants))
