"""What purging asks of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from sketch.protocol.tags import tag_of

__all__ = ["CachedKey", "PurgeFailed", "Purger", "Reason"]

Reason: TypeAlias = Literal["unreachable", "timeout", "refused"]


class CachedKey(NamedTuple):
    """A key of the sketch, ``class/id#group``, and its database."""

    database: str
    key: str

    @property
    def tag(self) -> str:
        """The tag that answers which show it carry."""
        return tag_of(self.database, self.key)


class PurgeFailed(Exception):
    """A cache did not confirm a purge.

    Attributes:
        reason: It was not reached, did not answer in time, or answered something else than success.
        status: What it answered, if it did.
    """

    def __init__(self, purger: str, reason: Reason, status: int | None = None) -> None:
        outcome = reason if status is None else f"{reason} with status {status}"
        super().__init__(f"{purger}: {outcome}")
        self.reason: Reason = reason
        self.status = status


class Purger(Protocol):
    """Asks one cache, or one API that speaks for many, to forget keys."""

    @property
    def name(self) -> str:
        """What it is called in logs and metrics."""

    @property
    def most(self) -> int:
        """Keys that one call may name."""

    async def purge(self, keys: Sequence[CachedKey]) -> None:
        """Return once the cache has confirmed; raises `PurgeFailed` and nothing else."""

    async def close(self) -> None:
        """Release every connection."""
