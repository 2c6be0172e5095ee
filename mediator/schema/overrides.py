"""Overrides: systems that operators choose for classes and fields, with a reason and an end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

__all__ = ["Override", "Overrides", "in_force"]


@dataclass(frozen=True, slots=True)
class Override:
    """A system that takes precedence over those that the schema requires, until a time."""

    system: str
    reason: str
    until: datetime


Overrides: TypeAlias = Mapping[str, Override]
"""By node: ``articles`` for a class, ``articles.hits`` for a field and its cache group."""


def in_force(overrides: Overrides, now: float) -> dict[str, Override]:
    """Return the overrides that have not ended; `now` is in seconds since the epoch."""
    at = datetime.fromtimestamp(now, UTC)
    return {node: override for node, override in overrides.items() if override.until > at}
