"""The feed's Lua scripts."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

__all__ = ["MARKS_KEPT_S", "RETIRED_KEPT_S", "TICKS", "source_of"]

TICKS: Final = "portolan:feed:ticks"
"""The key of the count that all feeds of an installation are told by."""

SKIPPED: Final = 3_600_000_000
"""Numbers left out where another server goes on: more than it can have lost."""

MARKS_KEPT_S: Final = 600
"""Seconds for which the version of a settled change is known at least."""

RETIRED_KEPT_S: Final = 86_400
"""Seconds for which it is known at least what a replica had brought when it was retired."""


def source_of(name: str) -> str:
    """Return the text of a script, with what all of them begin with."""
    folder = files(__name__)
    common, own = ((folder / f"{n}.lua").read_text("utf-8") for n in ("incarnate", name))
    numbers = f"{MARKS_KEPT_S}, {RETIRED_KEPT_S}, {SKIPPED}"
    kept = f"local MARKS_KEPT_S, RETIRED_KEPT_S, SKIPPED = {numbers}"
    return f"{kept}\n{common}\n{own}"
