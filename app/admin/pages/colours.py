"""The colour of each system, the same on all pages."""

from __future__ import annotations

from typing import Any

__all__ = ["colours_of"]


def colours_of(systems: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of each system's colour."""
    return {system["name"]: index for index, system in enumerate(systems)}
