"""What is said when the coordination Redis does not answer."""

from __future__ import annotations

from mediator.base.errors import Unavailable

__all__ = ["unavailable"]


def unavailable() -> Unavailable:
    """Return the error; it names no address, as URLs carry passwords."""
    return Unavailable("The coordination Redis does not answer.", system="coordination")
