"""Appends to what is in the coordination Redis, each by an id that is known for a time."""

from __future__ import annotations

from typing import Final

from redis_connection.scripts import lua_text

__all__ = ["RETRIED_S", "appends_text"]

RETRIED_S: Final = 60
"""Seconds within which a call may be sent again by the driver, which has lost the reply."""


def appends_text() -> str:
    """Return what a script that appends once starts with."""
    return lua_text("mediator.coordination.scripts", "appends")
