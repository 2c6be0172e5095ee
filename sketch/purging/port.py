"""The port of a purger, and the events that logs and metrics subscribe to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from sketch.protocol.keys import tag_of
from sketch.protocol.port import Purge

__all__ = [
    "CachedKey",
    "PurgeEvent",
    "PurgeEvents",
    "PurgeFailed",
    "PurgeQueueUnanswered",
    "Purger",
    "PurgerChanged",
    "PurgesFailed",
    "PurgesSent",
    "PurgesWaiting",
]

Reason: TypeAlias = Literal["unreachable", "timeout", "refused"]


class CachedKey(NamedTuple):
    """A key of the sketch, ``class/id#group``, and its database."""

    database: str
    key: str

    @classmethod
    def of(cls, purge: Purge) -> CachedKey:
        return cls(purge.partition.database, purge.key)

    @property
    def tag(self) -> str:
        """The tag of the responses that show it."""
        return tag_of(self.database, self.key)


class PurgeFailed(Exception):
    """A cache did not confirm a purge.

    Attributes:
        reason: It was not reached, did not answer in time, or answered without success.
        status: Status of its response, if there was one.
    """

    def __init__(self, purger: str, reason: Reason, status: int | None = None) -> None:
        outcome = reason if status is None else f"{reason} with status {status}"
        super().__init__(f"{purger}: {outcome}")
        self.reason: Reason = reason
        self.status = status


class Purger(Protocol):
    """Purges keys from one cache, or from many by one API."""

    @property
    def name(self) -> str:
        """Its name in logs and metrics."""

    @property
    def max_keys(self) -> int:
        """The maximum of keys in one call."""

    async def purge(self, keys: Sequence[CachedKey]) -> None:
        """Return once the cache has confirmed, however long that takes.

        Raises:
            PurgeFailed: It has not; nothing else is raised.
        """

    async def close(self) -> None:
        """Release every connection."""


@dataclass(frozen=True, slots=True)
class PurgesSent:
    """A purger confirmed keys that were in one request."""

    purger: str
    keys: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PurgesFailed:
    """A request to a purger failed; `status` is that of its response, if there was one."""

    purger: str
    keys: int
    reason: Reason
    status: int | None


@dataclass(frozen=True, slots=True)
class PurgerChanged:
    """A purger failed and is paused (down), or works again."""

    purger: str
    down: bool


@dataclass(frozen=True, slots=True)
class PurgesWaiting:
    """After a round: keys that this process took and could not purge everywhere.

    Attributes:
        oldest_s: How long the oldest of them has been waiting (seconds).
        repeated: Keys that this round took again, because a purger had not confirmed them.
    """

    keys: int
    oldest_s: float
    repeated: int


@dataclass(frozen=True, slots=True)
class PurgeQueueUnanswered:
    """The sketch, which stores the purges, did not answer; they stay there."""


PurgeEvent: TypeAlias = (
    PurgesSent | PurgesFailed | PurgerChanged | PurgesWaiting | PurgeQueueUnanswered
)
PurgeEvents: TypeAlias = Callable[[PurgeEvent], None]
