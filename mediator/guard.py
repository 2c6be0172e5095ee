"""The port called around every write to a store; the sketch is injected here as the guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = ["NullGuard", "WriteGuard", "guard_key"]


def guard_key(class_name: str, id_: str, group: str) -> str:
    """Name one cache group of one object, as the sketch knows it (COHERENCE.md, Keys)."""
    return f"{class_name}/{id_}#{group}"


class WriteGuard(Protocol):
    """Told before a write reaches a store and after it has (COHERENCE.md, Writing)."""

    async def begin(self, database: str, keys: Sequence[str]) -> str:
        """Mark the keys as being written; if it fails, the write is refused. Returns a token."""

    wants_versions: bool
    """Whether `end` is to be told versions; where nobody asks, nobody collects them."""

    async def end(self, database: str, token: str, versions: Mapping[str, int]) -> None:
        """Clear the mark; the write is acknowledged only after this returns.

        `versions` tells for each key that is known to have one by now which version it has.
        """


class NullGuard:
    """No caches to keep coherent."""

    wants_versions = False

    async def begin(self, database: str, keys: Sequence[str]) -> str:  # noqa: ARG002 - the port's shape
        """Do nothing."""
        return ""

    async def end(self, database: str, token: str, versions: Mapping[str, int]) -> None:
        """Do nothing."""
