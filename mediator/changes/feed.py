"""The port of the change feed: streams of changes, one for each partition of a database.

Databases are named by their ids here. A relay appends changes with their positions in the store's
log. The feed keeps the position of the last entry it has of each log (the *cursor*) and moves it in
the same step in which it appends, so a batch that is appended twice takes effect once.

*Stream ids* are positions in a stream: text that only the feed understands. `BEGINNING` is before
every change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

from mediator.base.errors import MediatorError
from mediator.base.lease import Lease
from mediator.changes.document import EncodedChange
from mediator.model.change import Change

__all__ = [
    "APPENDED_AT_ONCE",
    "APPENDED_BYTES",
    "BEGINNING",
    "PARTITIONS",
    "Event",
    "Feed",
    "FeedRolledBack",
    "LogBatch",
    "LogSource",
    "PositionGone",
    "WriterProgress",
    "partition_of",
]

APPENDED_AT_ONCE: Final = 1_000
"""Changes that relays append by one call: it is one script, which blocks its server."""

APPENDED_BYTES: Final = 2**22
"""About how many bytes these have, unless one has more: a call has to arrive in time."""

PARTITIONS: Final = 4
"""Streams of each database's feed. Another number would break the order of changes."""


def partition_of(class_name: str, object_id: str) -> int:
    name = f"{class_name}/{object_id}".encode()
    return int.from_bytes(blake2b(name, digest_size=4).digest()) % PARTITIONS


BEGINNING: Final = "0-0"


class FeedRolledBack(Exception):
    """The feed has lost changes: its server has an older state of its data."""


class PositionGone(MediatorError):
    """Changes after the position are no longer kept, or its feed is lost."""


@dataclass(frozen=True, slots=True)
class LogSource:
    system: str
    log: str


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Changes of one database that a relay has read of a log, in its order.

    Attributes:
        source: The log.
        after: The position from which it was read: all up to it must have been appended before.
        upto: The position up to which it was read.
        entries: The changes, each with its position.
    """

    source: LogSource
    after: str
    upto: str
    entries: Sequence[tuple[str, Change]]


@dataclass(frozen=True, slots=True)
class WriterProgress:
    """What one replica has appended of the changes that waited in a system's records.

    `appends` is how often it has appended to the feed of each database.
    """

    system: str
    replica: str
    appends: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """A change for subscribers; `data` is its JSON document."""

    partition: int
    id: str
    class_name: str
    data: bytes


class Feed(Protocol):
    """The feeds of all databases. Every method raises `Unavailable` if they cannot be reached."""

    async def cursors(self, database: str, system: str) -> Mapping[str, str]:
        """Return the cursors of a system's logs, by log."""

    async def create_cursor(self, database: str, source: LogSource, position: str) -> None:
        """Set the cursor of a log that has none."""

    async def append(
        self,
        database: str,
        batches: Sequence[LogBatch],
        lease: Lease,
        until_tick: int | None = None,
    ) -> int:
        """Append the changes after the cursors and move them, all in one step.

        It may be sent twice: changes before the cursors are left out. The batches are of one
        system; those without entries only compare and move their cursors. `until_tick` is published
        in the same step: the feed then has every change of the system acknowledged before this
        tick. None: that is not known.

        Returns:
            How many changes were new.

        Raises:
            LeaseLost: The lease is not held, and nothing was done.
            FeedRolledBack: A cursor is before its `LogBatch.after`, and nothing was done.
        """

    async def append_newer(
        self, database: str, changes: Sequence[EncodedChange], progress: WriterProgress
    ) -> int:
        """Append changes, in order, whose version is above the last one of their group.

        The `progress` of the replica that appends them is updated.

        Returns:
            How many changes were new.

        Raises:
            FeedRolledBack: The feed lacks earlier changes of the replica; nothing was done.
        """

    async def acknowledged(self, database: str, changes: Sequence[Change]) -> None:
        """Note that the outbox of these appended changes was acknowledged.

        The last versions of their groups expire after a while, unless more is appended.
        """

    async def publish_progress(
        self, database: str, progress: WriterProgress, until_tick: int
    ) -> None:
        """Publish that the feed has every change that a replica made itself before `until_tick`.

        Raises:
            FeedRolledBack: The feed lacks earlier changes of the replica.
        """

    async def leave(self, database: str, progress: WriterProgress) -> None:
        """Remove a replica that has appended all its changes and writes no more."""

    async def published_progress(self, database: str, system: str) -> Mapping[str, int]:
        """Return for each replica of a system the last tick of `publish_progress`."""

    async def retire(self, database: str, system: str, published: Mapping[str, int]) -> None:
        """Remove replicas that are not registered any more, after a sweep of what they wrote.

        `published` is their `published_progress` from before the sweep: a replica that has
        registered again, or published anything else since, stays.
        """

    async def relayed_until(self, database: str) -> Mapping[str, int]:
        """Return for each system the tick before which every acknowledged change is here.

        A reader of the streams after this call sees all of them. A system that has published
        nothing so far is left out, as is one whose writers are not known for sure
        (`mediator.changes.writers`).
        """

    async def tick(self) -> int:
        """Return the next tick, a number for `relayed_until`.

        Ticks of all feeds only rise: what was acknowledged before this call is below the number,
        whatever the clock of any machine shows.
        """

    async def read(
        self, database: str, partition: int, after: str, limit: int
    ) -> list[tuple[str, Change]]:
        """Return up to `limit` changes of a partition after a stream id, with theirs.

        Raises:
            PositionGone: Changes after it are no longer kept.
        """

    async def events(self, database: str, partition: int, after: str, limit: int) -> list[Event]:
        """Return the same as `read`, as events for subscribers."""

    async def follow(
        self, database: str, after: Sequence[str], limit: int, wait_s: float
    ) -> list[Event]:
        """Wait up to `wait_s` for events after a stream id in each partition."""

    async def last(self, database: str, partition: int) -> str:
        """Return the stream id of the newest change there ever was in a partition."""

    async def oldest(self, database: str, partition: int) -> str:
        """Return the stream id after which every change is kept."""

    async def generation(self, database: str) -> str:
        """Return the id of the generation; positions of another one are gone."""

    async def start_generation(self, database: str) -> None:
        """Start another generation: changes are missing that cannot be appended any more."""

    async def trim(self, database: str) -> None:
        """Remove changes beyond the retention."""

    async def clear(self, database: str) -> None:
        """Remove the feed of a database that was dropped."""
