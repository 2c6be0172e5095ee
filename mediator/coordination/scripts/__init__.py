"""The feed's Lua scripts."""

from __future__ import annotations

from typing import Final

from redis_connection.scripts import Script, lua_text

__all__ = ["MARKS_KEPT_S", "RETIRED_KEPT_S", "TICKS", "script_of"]

TICKS: Final = "portolan:feed:ticks"
"""The key of the count that all feeds of an installation are told by."""

SKIPPED: Final = 3_600_000_000
"""Numbers left out where another server goes on: more than it can have lost."""

MARKS_KEPT_S: Final = 600
"""Seconds for which the version of a settled change is known at least."""

RETIRED_KEPT_S: Final = 86_400
"""Seconds for which it is known at least what a replica had brought when it was retired."""


def script_of(name: str) -> Script:
    """Return a script, with what all of them begin with."""
    numbers = f"{MARKS_KEPT_S}, {RETIRED_KEPT_S}, {SKIPPED}"
    constants = f"local MARKS_KEPT_S, RETIRED_KEPT_S, SKIPPED = {numbers}"
    return Script("\n".join((constants, lua_text(__name__, "common"), lua_text(__name__, name))))
