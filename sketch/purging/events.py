"""What purging tells of: logs and metrics subscribe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sketch.purging.port import Reason

__all__ = [
    "PurgeEvent",
    "PurgeEvents",
    "PurgeQueueUnanswered",
    "PurgerChanged",
    "PurgesFailed",
    "PurgesSent",
    "PurgesWaiting",
]


@dataclass(frozen=True, slots=True)
class PurgesSent:
    """A purger confirmed that it has purged so many keys, in one request."""

    purger: str
    keys: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PurgesFailed:
    """A request to a purger failed; `status` is what it answered, if it did."""

    purger: str
    keys: int
    reason: Reason
    status: int | None


@dataclass(frozen=True, slots=True)
class PurgerChanged:
    """A purger failed and is left alone for a while (down), or works again."""

    purger: str
    down: bool


@dataclass(frozen=True, slots=True)
class PurgesWaiting:
    """What a round left: keys that this process took and could not purge everywhere.

    Attributes:
        oldest_s: For how long the oldest of them has been waiting, in seconds.
        repeated: Keys that this round took again, because a purger had not confirmed them.
    """

    keys: int
    oldest_s: float
    repeated: int


@dataclass(frozen=True, slots=True)
class PurgeQueueUnanswered:
    """The sketch, which keeps the purges, did not answer; they stay there."""


PurgeEvent: TypeAlias = (
    PurgesSent | PurgesFailed | PurgerChanged | PurgesWaiting | PurgeQueueUnanswered
)
PurgeEvents: TypeAlias = Callable[[PurgeEvent], None]
