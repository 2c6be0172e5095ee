"""Lua scripts of what is in the coordination Redis, and the keys of its feeds."""

from __future__ import annotations

from typing import Final

from mediator.changes.feed import PARTITIONS
from redis_connection.scripts import Script, lua_text

__all__ = ["RETRIED_S", "TICKS", "feed_key", "script_of", "text_of"]

RETRIED_S: Final = 60
"""Seconds within which a call may be sent again by the driver, which has lost the reply."""

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


def text_of(*names: str, **constants: object) -> str:
    """Return a script: constants, and the Lua files of this package that it consists of."""
    locals_ = (f"local {name} = {value}" for name, value in constants.items())
    return "\n".join((*locals_, *(lua_text(__name__, name) for name in names)))


def script_of(name: str) -> Script:
    """Return a script of the feed."""
    constants = {
        "VERSIONS_KEPT_S": VERSIONS_KEPT_S,
        "RETIRED_KEPT_S": RETIRED_KEPT_S,
        "SKIPPED": SKIPPED,
        "PARTITIONS": PARTITIONS,
    }
    return Script(text_of("common", name, **constants))
